# For programs of one master.c and one slave.c: see run_program.
program: master.o slave.o
	$(CC) -mhybrid $^ -o $@ -lm -lm_slave -lpthread
master.o: master.c
	$(CC) -mhost -O2 -std=gnu99 -c $< -o $@
slave.o: slave.c
	$(CC) -mslave -msimd -O3 -std=gnu99 -faddress_align=64 -c $< -o $@
clean:
	rm -f *.o program
