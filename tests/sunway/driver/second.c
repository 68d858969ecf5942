#ifdef __SANITIZE_THREAD__
#error second
#endif
void work(int* n) { n[0] = 1; }
