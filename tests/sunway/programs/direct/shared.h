#ifndef SHARED_H
#define SHARED_H
enum { kOdd = 37, kLarge = 50001 };
typedef struct {
  const char *line, *word, *program, *text;
  long (*grid)[9];
  void* empty;
  char *odd, *mapped;
  double* large;
  long found[64];
} job_t;
#endif
