int missing(int);
void work(int* n) {
#ifdef __SANITIZE_THREAD__
  n[0] = missing(1);
#elif !defined SECOND
  n[0] = missing(1);
#endif
}
