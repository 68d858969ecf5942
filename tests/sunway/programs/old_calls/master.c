#include <athread.h>
#include <math.h>
#include <stdio.h>

#define J 64
#define I 1000

extern SLAVE_FUN(func)();

double a[J][I], b[J][I], c[J][I], cc[J][I];

int main(void)
{
  int i, j;
  double checksum = 0, checksum2 = 0;
  for (j = 0; j < J; j++)
    for (i = 0; i < I; i++) {
      a[j][i] = (i + j + 0.5);
      b[j][i] = (i + j + 1.0);
    }
  for (j = 0; j < J; j++)
    for (i = 0; i < I; i++) cc[j][i] = a[j][i] / b[j][i];
  athread_init();
  athread_set_num_threads(64);
  athread_spawn(func, 0);
  athread_join();
  for (j = 0; j < J; j++)
    for (i = 0; i < I; i++) {
      checksum += c[j][i];
      checksum2 += cc[j][i];
    }
  printf("difference %.1f\n", fabs(checksum - checksum2));
  athread_halt();
  return 0;
}
