#ifndef SWAMP_TOOLCHAIN_SWCC_ASSEMBLY_H_
#define SWAMP_TOOLCHAIN_SWCC_ASSEMBLY_H_

#include <cstddef>
#include <string>
#include <vector>

#include "toolchain/sunway/swcc/options.h"
#include "toolchain/sunway/swcc/tokens.h"

namespace swcc {

// Instruction is a line of a template: "ldw %0, 8(%1)".
struct Instruction {
  std::string label;  // "1" of "1: ..."
  std::string name;
  Words operands;
};

// Operand is [name] "constraint" (expression).
struct Operand {
  std::string name, constraint, expression;
  bool output = false;
  bool memory() const {
    return constraint.find('m') != std::string::npos &&
           constraint.find('r') == std::string::npos;
  }
};

// Assembly is one asm statement.
struct Assembly {
  std::vector<Instruction> code;
  std::vector<Operand> operands;
};

// read_assembly() reads the tokens between the brackets of an asm.
Assembly read_assembly(const std::vector<Token>& tokens, std::size_t begin,
                       std::size_t end);

// trimmed() returns the text without spaces at its ends.
std::string trimmed(const std::string& text);

}  // namespace swcc

#endif  // SWAMP_TOOLCHAIN_SWCC_ASSEMBLY_H_
