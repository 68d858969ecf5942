#pragma once
struct Node {
  int value;
  Node* next;
};
struct Result {
  Node* nodes;
  long sum;
  int* line;  // 32 numbers, one of which a slave sets
  int* zeros;
};
