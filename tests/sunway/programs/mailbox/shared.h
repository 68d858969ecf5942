/* Arguments with words that change while the slaves run. */
typedef struct {
  long* results;
  volatile int stop, go;
  volatile long letter, lock;
  long tickets;
} work_t;
