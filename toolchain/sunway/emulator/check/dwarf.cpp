// Reads DWARF 4, for which swcc asks gcc. Variables that are in registers for a
// while, and compilation units of another version, are left out.
#include "toolchain/sunway/emulator/check/dwarf.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "toolchain/sunway/emulator/debug_info.h"

namespace swamp::sunway::check {
namespace {

// Numbers of the standard: tags, attributes, forms and operations.
constexpr unsigned kArrayType = 0x01, kEnumeration = 0x04, kParameter = 0x05,
                   kLexicalBlock = 0x0b, kPointerType = 0x0f, kTypedef = 0x16,
                   kInlinedSubroutine = 0x1d, kSubrange = 0x21,
                   kBaseType = 0x24, kConstType = 0x26, kSubprogram = 0x2e,
                   kVariable = 0x34, kVolatileType = 0x35;
constexpr unsigned kLocation = 0x02, kName = 0x03, kByteSize = 0x0b,
                   kLowPc = 0x11, kHighPc = 0x12, kLanguage = 0x13,
                   kLowerBound = 0x22, kUpperBound = 0x2f, kOrigin = 0x31,
                   kCount = 0x37, kType = 0x49, kRanges = 0x55;
constexpr unsigned kAttributes[] = {
    kLocation,   kName,       kByteSize, kLowPc, kHighPc, kLanguage,
    kLowerBound, kUpperBound, kOrigin,   kCount, kType,   kRanges};
constexpr unsigned kAddress = 0x01, kText = 0x08, kBlock = 0x09, kSigned = 0x0d,
                   kTextElsewhere = 0x0e, kUnsigned = 0x0f, kReference = 0x15,
                   kExpression = 0x18;
constexpr unsigned kBreg6 = 0x76, kBreg7 = 0x77, kFbreg = 0x91;

template <class All, class One>
bool contains(const All& all, One one) {
  return std::find(std::begin(all), std::end(all), one) != std::end(all);
}

// Bytes reads a section; beyond its end there are zeros.
struct Bytes {
  const unsigned char* at = nullptr;
  const unsigned char* end = nullptr;

  std::size_t left() const { return static_cast<std::size_t>(end - at); }
  Bytes& skip(std::size_t bytes) {
    at += std::min(bytes, left());
    return *this;
  }
  std::uint64_t number(std::size_t bytes) {
    std::uint64_t value = 0;
    std::memcpy(&value, at, std::min(bytes, left()));
    skip(bytes);
    return value;
  }
  std::uint64_t leb(bool is_signed = false) {
    std::uint64_t value = 0;
    unsigned shift = 0;
    unsigned byte = 0x80;
    for (; (byte & 0x80u) != 0 && left() != 0 && shift < 64; shift += 7) {
      byte = *at++;
      value |= std::uint64_t{byte & 0x7fu} << shift;
    }
    if (is_signed && (byte & 0x40u) != 0 && shift < 64) value |= ~0ul << shift;
    return value;
  }
};

// Value is an attribute: a number, an address or an offset; or a text, or an
// expression.
struct Value {
  unsigned attribute = 0;
  unsigned form = 0;
  std::uint64_t number = 0;
  Bytes block;
  bool is_number() const {  // and not an offset
    constexpr unsigned kConstants[] = {0x05, 0x06, 0x07, 0x0b, 0x0d, 0x0f};
    return contains(kConstants, form);
  }
};

// Entry is an entry of .debug_info.
struct Entry {
  unsigned tag = 0;  // 0: the end of a list
  bool has_children = false;
  std::array<Value, std::size(kAttributes)> values;
  std::size_t count = 0;

  const Value* find(unsigned attribute) const {
    for (std::size_t i = 0; i < count; ++i) {
      if (values[i].attribute == attribute) return &values[i];
    }
    return nullptr;
  }
  std::uint64_t number(unsigned attribute) const {
    const Value* value = find(attribute);
    return value == nullptr ? 0 : value->number;
  }
};

class Reader {
 public:
  explicit Reader(const std::string& image) : image_(image) {
    for (Bytes info = section(".debug_info"); info.left() != 0;) {
      unit_ = info;
      const std::uint64_t bytes = info.number(4);
      unit_.end = info.skip(bytes).at;
      read_unit(Bytes(unit_).skip(4));
    }
  }
  std::map<std::uintptr_t, Function> functions;  // by their end

 private:
  struct Form {
    unsigned attribute, form;
  };
  struct Abbreviation {
    unsigned tag = 0;
    bool has_children = false;
    std::vector<Form> forms;
  };

  Bytes section(const char* wanted) const {
    const auto* begin = reinterpret_cast<const unsigned char*>(image_.data());
    if (image_.size() < sizeof(Elf64_Ehdr)) return {begin, begin};
    const auto* file = reinterpret_cast<const Elf64_Ehdr*>(begin);
    const auto* all =
        reinterpret_cast<const Elf64_Shdr*>(begin + file->e_shoff);
    const char* names = image_.data() + all[file->e_shstrndx].sh_offset;
    for (unsigned i = 0; i < file->e_shnum; ++i) {
      const unsigned char* data = begin + all[i].sh_offset;
      if (std::strcmp(names + all[i].sh_name, wanted) == 0 &&
          (all[i].sh_flags & SHF_COMPRESSED) == 0) {
        return {data, data + all[i].sh_size};
      }
    }
    return {begin, begin};
  }

  void read_unit(Bytes unit) {
    constexpr unsigned kVersion = 4;
    if (unit.number(2) != kVersion) return;
    read_abbreviations(unit.number(4));
    unit.skip(1);  // the size of an address
    const Entry root = read(unit);
    base_ = root.number(kLowPc);
    constexpr unsigned kFortran[] = {0x07, 0x08, 0x0e, 0x22, 0x23};
    is_fortran_ = contains(kFortran, root.number(kLanguage));
    if (root.has_children) read_children(unit, {}, nullptr);
  }

  void read_abbreviations(std::uint64_t offset) {
    Bytes bytes = section(".debug_abbrev").skip(offset);
    abbreviations_.clear();
    while (const std::uint64_t code = bytes.leb()) {
      Abbreviation& one = abbreviations_[code];
      one.tag = static_cast<unsigned>(bytes.leb());
      one.has_children = bytes.number(1) != 0;
      for (;;) {
        const auto attribute = static_cast<unsigned>(bytes.leb());
        const auto form = static_cast<unsigned>(bytes.leb());
        if (form == 0) break;
        one.forms.push_back({attribute, form});
      }
    }
  }

  Value read_value(Bytes& bytes, const Form& form) {
    // By form: the size of a number, and of the length of a block.
    static constexpr char kSizes[] = "-8---248---11---41248--4-0------8";
    static constexpr char kLengths[] = "---24-----1";
    Value value{form.attribute, form.form, 0, {}};
    const auto block = [&](std::size_t length) {
      value.block = bytes;
      value.block.end = bytes.skip(length).at;
    };
    const auto digit = [&](const char* digits, std::size_t count) {
      return form.form < count ? digits[form.form] - '0' : -1;
    };
    const int size = digit(kSizes, sizeof kSizes - 1);
    const int length = digit(kLengths, sizeof kLengths - 1);
    if (size >= 0) {
      value.number = bytes.number(static_cast<std::size_t>(size));
    } else if (length > 0) {
      block(bytes.number(static_cast<std::size_t>(length)));
    } else if (form.form == kExpression || form.form == kBlock) {
      block(bytes.leb());
    } else if (form.form == kText) {
      block(static_cast<std::size_t>(std::find(bytes.at, bytes.end, 0) + 1 -
                                     bytes.at));
    } else if (form.form == kTextElsewhere) {
      value.block = section(".debug_str").skip(bytes.number(4));
    } else if (form.form == kSigned || form.form == kUnsigned ||
               form.form == kReference) {
      value.number = bytes.leb(form.form == kSigned);
    } else {  // nothing that gcc writes: leaves out the rest of the unit
      bytes.at = bytes.end;
    }
    return value;
  }

  Entry read(Bytes& bytes) {
    Entry entry;
    const auto found = abbreviations_.find(bytes.leb());
    if (found == abbreviations_.end()) return entry;
    entry.tag = found->second.tag;
    entry.has_children = found->second.has_children;
    for (const Form& form : found->second.forms) {
      const Value value = read_value(bytes, form);
      if (contains(kAttributes, form.attribute)) {
        entry.values[entry.count++] = value;
      }
    }
    return entry;
  }

  std::vector<Slot::Range> ranges_of(const Entry& entry) const {
    std::vector<Slot::Range> all;
    if (const Value* offset = entry.find(kRanges)) {
      Bytes bytes = section(".debug_ranges").skip(offset->number);
      std::uint64_t base = base_;
      while (bytes.left() != 0) {
        const std::uint64_t begin = bytes.number(8);
        const std::uint64_t end = bytes.number(8);
        if (begin == 0 && end == 0) break;
        if (begin == ~0ul) {
          base = end;
        } else {
          all.emplace_back(base + begin, base + end);
        }
      }
    } else if (const Value* high = entry.find(kHighPc)) {
      const std::uint64_t low = entry.number(kLowPc);
      all.emplace_back(low, high->number + (high->form == kAddress ? 0 : low));
    }
    return all;
  }

  // read_children() reads entries up to the end of their list. They belong to
  // the code in `scope` of a function, or to none.
  void read_children(Bytes& bytes, const std::vector<Slot::Range>& scope,
                     Function* function) {
    while (bytes.left() != 0) {
      const Entry entry = read(bytes);
      if (entry.tag == 0) return;
      if (function != nullptr &&
          (entry.tag == kVariable || entry.tag == kParameter)) {
        add(*function, entry, scope);
      }
      if (!entry.has_children) continue;
      const std::vector<Slot::Range> code = ranges_of(entry);
      if (entry.tag == kSubprogram && !code.empty()) {
        Function inner;
        read_children(bytes, code, &inner);
        for (const Slot::Range& range : code) {
          inner.begin = range.first;
          if (!inner.slots.empty()) functions[range.second] = inner;
        }
      } else if (entry.tag == kLexicalBlock ||
                 entry.tag == kInlinedSubroutine) {
        read_children(bytes, code, code.empty() ? nullptr : function);
      } else {
        read_children(bytes, {}, nullptr);
      }
    }
  }

  void add(Function& function, const Entry& entry,
           const std::vector<Slot::Range>& scope) {
    const Value* place = entry.find(kLocation);
    if (place == nullptr || place->block.left() < 2) return;
    Bytes expression = place->block;
    const auto operation = static_cast<unsigned>(expression.number(1));
    const std::uintptr_t offset = expression.leb(true);
    constexpr unsigned kFixed[] = {kFbreg, kBreg6, kBreg7};
    if (!contains(kFixed, operation) || expression.left() != 0) return;
    Entry whole = entry;  // what is inlined refers to its declaration
    for (int i = 0; i < 4 && whole.find(kOrigin) != nullptr; ++i) {
      Bytes at = Bytes(unit_).skip(whole.number(kOrigin));
      whole = read(at);
    }
    const Value* name = whole.find(kName);
    bool is_plain = false;
    const std::size_t bytes = size_of(whole.number(kType), &is_plain);
    if (name == nullptr || bytes == 0) return;
    function.slots.push_back(
        {scope, reinterpret_cast<const char*>(name->block.at), bytes, is_plain,
         operation == kFbreg   ? Slot::Place::base
         : operation == kBreg6 ? Slot::Place::frame_pointer
                               : Slot::Place::stack_pointer,
         offset});
  }

  // size_of() returns 0 for a type whose size is not constant.
  std::size_t size_of(std::uint64_t type, bool* is_plain) {
    constexpr int kDeepest = 16;
    std::size_t count = 1;
    for (int i = 0; i < kDeepest && type != 0; ++i) {
      Bytes at = Bytes(unit_).skip(type);
      const Entry entry = read(at);
      type = entry.number(kType);
      if (entry.tag == kArrayType) {
        for (Entry bounds = read(at); bounds.tag != 0; bounds = read(at)) {
          count *= elements_of(bounds);
        }
      } else if (entry.tag != kTypedef && entry.tag != kConstType &&
                 entry.tag != kVolatileType) {
        *is_plain = entry.tag == kBaseType || entry.tag == kEnumeration ||
                    entry.tag == kPointerType;
        return count * entry.number(kByteSize);
      }
    }
    return 0;
  }

  std::size_t elements_of(const Entry& bounds) const {
    const auto is_known = [&](unsigned attribute) {
      const Value* value = bounds.find(attribute);
      return value != nullptr && value->is_number();
    };
    if (is_known(kCount)) return bounds.number(kCount);
    const bool has_lower = bounds.find(kLowerBound) != nullptr;
    if (!is_known(kUpperBound) || (has_lower && !is_known(kLowerBound))) {
      return 0;
    }
    const std::uint64_t lower =
        has_lower ? bounds.number(kLowerBound) : (is_fortran_ ? 1 : 0);
    return bounds.number(kUpperBound) - lower + 1;
  }

  const std::string& image_;
  std::map<std::uint64_t, Abbreviation> abbreviations_;  // of the unit
  Bytes unit_;
  std::uintptr_t base_ = 0;  // of the unit's ranges
  bool is_fortran_ = false;
};

}  // namespace

const std::map<std::uintptr_t, Function>& functions() {
  static const auto* const all = [] {
    const std::string image = program_image();
    return new std::map<std::uintptr_t, Function>(
        std::move(Reader(image).functions));
  }();
  return *all;
}

}  // namespace swamp::sunway::check
