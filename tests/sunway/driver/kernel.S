void f(void) {}
	.arch sw3
