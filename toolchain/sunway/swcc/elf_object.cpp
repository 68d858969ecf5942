#include "toolchain/sunway/swcc/elf_object.h"

#include <elf.h>

#include <cstddef>
#include <cstring>
#include <utility>

namespace swcc {
namespace {

// View reads the headers of an image; they are copied, never pointed at.
class View {
 public:
  explicit View(const std::string& image) : image_(image) {
    header_ = at<Elf64_Ehdr>(0);
  }
  std::size_t sections() const { return header_.e_shnum; }
  Elf64_Shdr section(std::size_t i) const {
    return at<Elf64_Shdr>(section_offset(i));
  }
  std::size_t section_offset(std::size_t i) const {
    return header_.e_shoff + i * sizeof(Elf64_Shdr);
  }
  std::string section_name(const Elf64_Shdr& section_header) const {
    return name(section(header_.e_shstrndx), section_header.sh_name);
  }
  std::string name(const Elf64_Shdr& strings, std::size_t offset) const {
    if (offset >= strings.sh_size) return "";
    return image_.c_str() + strings.sh_offset + offset;
  }
  template <class T>
  T at(std::size_t offset) const {
    T value{};
    if (offset + sizeof value <= image_.size()) {
      std::memcpy(&value, image_.data() + offset, sizeof value);
    }
    return value;
  }
  // for_symbols() visits (symbol, name, offset of the symbol in the image).
  template <class Visit>
  void for_symbols(Visit visit) const {
    for (std::size_t i = 0; i < sections(); ++i) {
      const Elf64_Shdr table = section(i);
      if (table.sh_type != SHT_SYMTAB) continue;
      const Elf64_Shdr strings = section(table.sh_link);
      for (std::size_t s = 0; s < table.sh_size / sizeof(Elf64_Sym); ++s) {
        const std::size_t offset = table.sh_offset + s * sizeof(Elf64_Sym);
        const auto symbol = at<Elf64_Sym>(offset);
        visit(symbol, name(strings, symbol.st_name), offset);
      }
    }
  }

 private:
  const std::string& image_;
  Elf64_Ehdr header_;
};

// is_vtable() returns whether the name is that of a table of virtual functions,
// or of what is needed to construct one.
bool is_vtable(const std::string& name) {
  return name.rfind("_ZTV", 0) == 0 || name.rfind("_ZTC", 0) == 0 ||
         name.rfind("_ZTT", 0) == 0;
}

template <class T>
void put(std::string& image, std::size_t offset, const T& value) {
  std::memcpy(image.data() + offset, &value, sizeof value);
}

}  // namespace

bool ElfObject::is_one(const std::string& image) {
  if (image.size() < sizeof(Elf64_Ehdr) ||
      std::memcmp(image.data(), ELFMAG, SELFMAG) != 0) {
    return false;
  }
  Elf64_Ehdr header;
  std::memcpy(&header, image.data(), sizeof header);
  return header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_type == ET_REL &&
         header.e_machine == EM_X86_64 &&
         header.e_shoff + header.e_shnum * sizeof(Elf64_Shdr) <= image.size();
}

ElfObject::ElfObject(std::string image) : image_(std::move(image)) {}

bool ElfObject::has_section(const std::string& name) const {
  const View view(image_);
  for (std::size_t i = 0; i < view.sections(); ++i) {
    if (view.section_name(view.section(i)) == name) return true;
  }
  return false;
}

std::string ElfObject::section(const std::string& name) const {
  const View view(image_);
  for (std::size_t i = 0; i < view.sections(); ++i) {
    const Elf64_Shdr section = view.section(i);
    if (view.section_name(section) != name) continue;
    return image_.substr(section.sh_offset, section.sh_size);
  }
  return "";
}

std::set<std::string> ElfObject::functions() const {
  std::set<std::string> names;
  View(image_).for_symbols(
      [&](const Elf64_Sym& symbol, const std::string& name, std::size_t) {
        const auto type = ELF64_ST_TYPE(symbol.st_info);
        if (symbol.st_shndx != SHN_UNDEF &&
            (type == STT_FUNC || type == STT_GNU_IFUNC) &&
            ELF64_ST_BIND(symbol.st_info) != STB_LOCAL) {
          names.insert(name);
        }
      });
  return names;
}

std::set<std::string> ElfObject::undefined() const {
  std::set<std::string> names;
  View(image_).for_symbols(
      [&](const Elf64_Sym& symbol, const std::string& name, std::size_t) {
        if (symbol.st_shndx == SHN_UNDEF && !name.empty()) names.insert(name);
      });
  return names;
}

std::set<std::string> ElfObject::code_groups() const {
  std::set<std::string> names;
  const View view(image_);
  for (std::size_t i = 0; i < view.sections(); ++i) {
    const Elf64_Shdr group = view.section(i);
    if (group.sh_type != SHT_GROUP) continue;
    bool code = false;
    for (std::size_t at = 4; at < group.sh_size; at += 4) {
      const auto member = view.at<Elf64_Word>(group.sh_offset + at);
      code = code || (view.section(member).sh_flags & SHF_EXECINSTR) != 0;
    }
    const Elf64_Shdr table = view.section(group.sh_link);
    const auto symbol =
        view.at<Elf64_Sym>(table.sh_offset + group.sh_info * sizeof(Elf64_Sym));
    const std::string name =
        view.name(view.section(table.sh_link), symbol.st_name);
    if (code || is_vtable(name)) names.insert(name);
  }
  return names;
}

std::string ElfObject::renamed(
    const std::map<std::string, std::string>& names) const {
  std::string image = image_;
  const View view(image_);
  for (std::size_t i = 0; i < view.sections(); ++i) {
    const Elf64_Shdr table = view.section(i);
    if (table.sh_type != SHT_SYMTAB) continue;
    // The new names go behind the old ones, into a copy at the end of the file.
    Elf64_Shdr strings = view.section(table.sh_link);
    std::string text = image_.substr(strings.sh_offset, strings.sh_size);
    std::map<std::string, Elf64_Word> added;
    view.for_symbols(
        [&](Elf64_Sym symbol, const std::string& name, std::size_t offset) {
          const auto found = names.find(name);
          // A local symbol of that name is another; but a group may be named by
          // one.
          if (found == names.end()) return;
          const auto entry =
              added.emplace(name, static_cast<Elf64_Word>(text.size()));
          if (entry.second) text += found->second + '\0';
          symbol.st_name = entry.first->second;
          put(image, offset, symbol);
        });
    image.resize((image.size() + 15) / 16 * 16);
    strings.sh_offset = image.size();
    strings.sh_size = text.size();
    put(image, view.section_offset(table.sh_link), strings);
    image += text;
  }
  return image;
}

}  // namespace swcc
