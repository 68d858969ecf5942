void f(long* x) { asm volatile("vldd $32, 0(%0)" ::"r"(x)); }
