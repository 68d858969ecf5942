#include "master/cli/replay/code_result.h"

#include <fmt/core.h>

#include <algorithm>

#include "swamp/float_formats.h"

namespace swamp::cli {

Place Layout::place(std::size_t element, std::size_t elements) const {
  const std::size_t row = element / columns(), column = element % columns();
  Place place{fmt::format("row {}, column {}{}", row, column,
                          is_transposed ? ", of the transpose" : ""),
              "; input " + number_text(bits(row, column), input.type)};
  if (elements == 2) {
    place.more += ", " + number_text(bits(row, column + 1), input.type);
  }
  if (block == 0) return place;
  const std::size_t begin = column / block * block;
  const std::size_t end = std::min(begin + block, columns());
  place.more += fmt::format("; block of columns {} to {}", begin, end - 1);
  if (end - begin > kMaxShown) return place;
  place.more += ": inputs ";
  for (std::size_t c = begin; c < end; ++c) {
    place.more += hex(bits(row, c), input.type);
  }
  place.first = (row * columns() + begin) / elements;
  place.count = (end - begin) / elements;
  return place;
}

PlaceOf Layout::places(ScalarType format) const {
  const std::size_t elements = format == kFloat4E2M1FNX2 ? 2 : 1;
  return [this, elements](std::size_t number) {
    return place(elements * number, elements);
  };
}

bool CodeResults::both_nan(std::size_t, std::uint32_t a, std::uint32_t b) {
  return a << 1 > 0xff000000u && b << 1 > 0xff000000u;
}

void CodeResults::set(const char* field, ScalarType type, Words ours,
                      const Alike& alike, const PlaceOf& place) {
  if (check_) json_member(record_, field);
  bool is_list = false;
  if (record_.contains(field)) {
    is_list = record_[field].is_array();
    const Words theirs = words_field(record_, field, type);
    for (std::size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
      if (alike(i, ours[i], theirs[i])) ours[i] = theirs[i];
    }
    if (difference_.empty()) compare(field, type, ours, theirs, place);
  }
  Json list = Json::array();
  std::string text;
  for (const std::uint32_t word : ours) {
    if (is_list) list.push_back(hex(word, type));
    text += hex(word, type);
  }
  record_[field] = is_list ? list : Json(text);
}

void CodeResults::set(const char* field, float ours) {
  set(field, kFloat32, {float_to_bits(ours)}, both_nan,
      [](std::size_t) { return Place{}; });
}

void CodeResults::compare(const char* field, ScalarType type, const Words& ours,
                          const Words& theirs, const PlaceOf& place_of) {
  if (ours.size() != theirs.size()) {
    difference_ = fmt::format("{}: expected {} numbers, found {}", field,
                              ours.size(), theirs.size());
    return;
  }
  const auto at = std::mismatch(ours.begin(), ours.end(), theirs.begin());
  if (at.first == ours.end()) return;
  const Place place =
      place_of(static_cast<std::size_t>(at.first - ours.begin()));
  difference_ = fmt::format("{}{}{}: expected {}, found {}{}", field,
                            place.name.empty() ? "" : " of ", place.name,
                            number_text(*at.first, type),
                            number_text(*at.second, type), place.more);
  const auto show = [&](const char* name, const Words& words) {
    if (place.count != 0) difference_ += name;
    for (std::size_t i = 0; i < place.count; ++i) {
      difference_ += hex(words[place.first + i], type);
    }
  };
  show(", expected ", ours);
  show(", found ", theirs);
}

}  // namespace swamp::cli
