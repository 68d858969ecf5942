#ifndef SWAMP_MASTER_CLI_COMMA_LIST_H_
#define SWAMP_MASTER_CLI_COMMA_LIST_H_

#include <algorithm>
#include <cstddef>
#include <string>

namespace swamp::cli {

// for_each_item() visits what stands between the commas of a text; an empty
// text is one empty item.
template <class Visit>
void for_each_item(const std::string& text, const Visit& visit) {
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    visit(text.substr(begin, comma - begin));
    begin = comma + 1;
  }
}

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_COMMA_LIST_H_
