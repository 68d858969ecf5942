void f(long* x) {
  asm volatile("vlenma $32, $33, $34" ::"r"(x) : "$32", "$33", "$34");
}
