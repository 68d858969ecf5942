#ifndef SWAMP_TOOLCHAIN_SWCC_REGISTERS_H_
#define SWAMP_TOOLCHAIN_SWCC_REGISTERS_H_

#include <string>

namespace swcc {

// with_register_calls() makes calls, in preprocessed code, of the inline
// assembly of SW26010's register communication: putr, putc, getr, getc, one
// instruction a statement, as programs have them in macros.
std::string with_register_calls(const std::string& preprocessed,
                                bool cplusplus);

}  // namespace swcc

#endif  // SWAMP_TOOLCHAIN_SWCC_REGISTERS_H_
