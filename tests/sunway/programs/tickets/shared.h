enum { kSlaves = 64, kTasks = 500, kTask = 40 };

/* What a slave found in its share of the tasks. */
typedef struct {
  long sum;
  double mean;
  float part;
  int count;
  double largest;
  long rest[12];
} share_t;
