/* What the gallery's masters and slaves share. */
#ifndef COMMON_H
#define COMMON_H

enum { kSlaves = 64, kPart = 64, kCount = kSlaves * kPart };

typedef struct {
  double* in;  /* kCount numbers */
  double* out; /* kCount numbers */
  long* flag;  /* kSlaves numbers */
} args_t;

#endif
