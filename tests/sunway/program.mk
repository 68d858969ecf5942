# For programs without a Makefile of their own: a master.c (counting.c if there is
# none) or master.cpp, and any number of slave sources. See the script run.
master := $(wildcard master.c master.cpp)
program: $(addsuffix .o,$(basename $(wildcard *.c *.cpp)))
	$(CC) -mhybrid $^ -o $@ -lm -lm_slave -lpthread
master.o: $(master)
	$(CC) -mhost -O2 -std=$(if $(filter %.c,$(master)),gnu99,c++14) -c $< -o $@
%.o: %.c
	$(CC) -mslave -msimd -O3 -std=gnu99 -faddress_align=64 -c $< -o $@
%.o: %.cpp
	$(CC) -mslave -O2 -std=c++14 -c $< -o $@
