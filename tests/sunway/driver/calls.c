int only_host(int);
void work(int* n) { n[0] = only_host(1); }
