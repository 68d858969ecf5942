/* No header: the compiler knows the types, the keyword and the builtin. */
__thread_local doublev4 sent = 0, got;
__thread_local floatv4 factor;

double broadcast(double value) {
  int column;
  asm("rcsr %0, 2" : "=r"(column));
  factor = 2.0;
  sent = value;
  if (column == 0) __builtin_sw64_putR(sent, 8);
  if (column != 0) got = __builtin_sw64_getxR(got);
  return column == 0 ? value : got[3];
}
/* A vector is its first element if it is assigned to a number. */
float times(void) {
  float first = factor, both[2] = {0};
  float* second = both + 1;
  *second += factor;
  return first + both[1] - factor[1];
}
