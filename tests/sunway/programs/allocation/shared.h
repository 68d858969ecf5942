#pragma once
struct Node {
  int value;
  Node* next;
};
struct Result {
  Node* nodes;
  long sum;
};
