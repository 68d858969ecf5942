// Strict numbers of the command line: the whole text is the number, and it lies
// in the range; else a UsageError names option, value and range.
#ifndef SWAMP_MASTER_CLI_NUMBER_H_
#define SWAMP_MASTER_CLI_NUMBER_H_

#include <cstdint>
#include <string>

namespace swamp::cli {

std::uint64_t parse_integer(const std::string& option, const std::string& text,
                            std::uint64_t low, std::uint64_t high);

double parse_real(const std::string& option, const std::string& text,
                  double low, double high);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_NUMBER_H_
