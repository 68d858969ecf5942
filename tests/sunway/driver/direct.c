void work(int* n) {
  if (n[0] == 3) return;
}
