int shared = 4;
