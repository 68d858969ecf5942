int five(void) { return 5; }
