#include <slave.h>
#include <stdio.h>
void work(int* numbers) {
  char digit = 0;
  FILE* log;
  if (_PEN != 0) return;
  setvbuf(stdin, NULL, _IONBF, 0);
  digit = (char)getchar();
  log = fopen("log", "a");
  fprintf(log, "%c\n", digit);
  fclose(log);
  numbers[32 * 5 + 1] = digit - '0';
}
