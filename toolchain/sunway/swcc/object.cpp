// Reads ELF objects, archives and thin archives by their headers, with every
// offset checked: the symbols and sections that the link needs.
#include "toolchain/sunway/swcc/object.h"

#include <ar.h>
#include <elf.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <utility>

#include "toolchain/sunway/swcc/subprocess.h"

namespace swcc {
namespace {

// View reads the headers of an image. It returns copies, because the image has
// no alignment.
class View {
 public:
  explicit View(const std::string& image) : image_(image) {
    header_ = at<Elf64_Ehdr>(0);
  }
  std::size_t sections() const { return header_.e_shnum; }
  Elf64_Shdr section(std::size_t i) const {
    return at<Elf64_Shdr>(header_.e_shoff + i * sizeof(Elf64_Shdr));
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
  // for_symbols() calls visit(symbol, name) for each symbol.
  template <class Visit>
  void for_symbols(Visit visit) const {
    for (std::size_t i = 0; i < sections(); ++i) {
      const Elf64_Shdr table = section(i);
      if (table.sh_type != SHT_SYMTAB) continue;
      const Elf64_Shdr strings = section(table.sh_link);
      for (std::size_t s = 0; s < table.sh_size / sizeof(Elf64_Sym); ++s) {
        const auto symbol =
            at<Elf64_Sym>(table.sh_offset + s * sizeof(Elf64_Sym));
        visit(symbol, name(strings, symbol.st_name));
      }
    }
  }
  // names() returns the names of the symbols that are wanted.
  template <class IsWanted>
  std::set<std::string> names(IsWanted is_wanted) const {
    std::set<std::string> all;
    for_symbols([&](const Elf64_Sym& symbol, const std::string& name) {
      if (is_wanted(symbol)) all.insert(name);
    });
    return all;
  }

 private:
  const std::string& image_;
  Elf64_Ehdr header_;
};

// is_vtable() returns whether the name is that of a table of virtual functions,
// of a construction vtable or of a VTT.
bool is_vtable(const std::string& name) {
  return name.rfind("_ZTV", 0) == 0 || name.rfind("_ZTC", 0) == 0 ||
         name.rfind("_ZTT", 0) == 0;
}

namespace fs = std::filesystem;

constexpr char kThin[] = "!<thin>\n";

ar_hdr header_at(const std::string& image, std::size_t at) {
  ar_hdr header{};
  if (at + sizeof header <= image.size()) {
    std::memcpy(&header, image.data() + at, sizeof header);
  }
  return header;
}

std::size_t bytes_of(const ar_hdr& header) {
  const std::string digits(header.ar_size, sizeof header.ar_size);
  return std::strtoull(digits.c_str(), nullptr, 10);
}

// outside() returns a member of a thin archive: the file `name`, or, if
// `origin` is not 0, the member of the archive `name` whose header is at that
// offset.
Member outside(const std::string& file, const std::string& name,
               std::size_t origin) {
  const fs::path path = fs::path(file).parent_path() / name;
  Member member{path.filename().string(), read_file(path.string())};
  if (origin != 0) {
    const ar_hdr header = header_at(member.image, origin);
    member.image = member.image.substr(
        std::min(origin + sizeof header, member.image.size()),
        bytes_of(header));
  }
  return member;
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

int ElfObject::machine_of(const std::string& image) {
  Elf64_Ehdr header;
  if (image.size() < sizeof header ||
      std::memcmp(image.data(), ELFMAG, SELFMAG) != 0) {
    return EM_NONE;
  }
  std::memcpy(&header, image.data(), sizeof header);
  return header.e_machine;
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
  return View(image_).names([](const Elf64_Sym& symbol) {
    const auto type = ELF64_ST_TYPE(symbol.st_info);
    return symbol.st_shndx != SHN_UNDEF &&
           (type == STT_FUNC || type == STT_GNU_IFUNC) &&
           ELF64_ST_BIND(symbol.st_info) != STB_LOCAL;
  });
}

std::set<std::string> ElfObject::undefined() const {
  return View(image_).names([](const Elf64_Sym& symbol) {
    return symbol.st_shndx == SHN_UNDEF && symbol.st_name != 0;
  });
}

std::map<std::string, Variable> ElfObject::variables() const {
  std::map<std::string, Variable> all;
  const View view(image_);
  view.for_symbols([&](const Elf64_Sym& symbol, const std::string& name) {
    if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT ||
        ELF64_ST_BIND(symbol.st_info) == STB_LOCAL ||
        symbol.st_shndx == SHN_UNDEF) {
      return;
    }
    Variable one;
    one.bytes = static_cast<long>(symbol.st_size);
    if (symbol.st_shndx < view.sections()) {
      const Elf64_Shdr section = view.section(symbol.st_shndx);
      one.uncached = view.section_name(section).rfind("swamp_uncached", 0) == 0;
      one.tentative =
          one.uncached && ELF64_ST_BIND(symbol.st_info) == STB_GLOBAL &&
          (section.sh_type == SHT_NOBITS ||
           image_.substr(section.sh_offset + symbol.st_value, symbol.st_size)
                   .find_first_not_of('\0') == std::string::npos);
    }
    all[name] = one;
  });
  return all;
}

std::set<std::string> ElfObject::uncached_declarations() const {
  std::istringstream names(section(".swamp.uncached"));
  return {std::istream_iterator<std::string>(names), {}};
}

std::map<std::string, long> ElfObject::thread_locals() const {
  std::map<std::string, long> sizes;
  View(image_).for_symbols(
      [&](const Elf64_Sym& symbol, const std::string& name) {
        if (symbol.st_shndx != SHN_UNDEF && symbol.st_size != 0 &&
            ELF64_ST_TYPE(symbol.st_info) == STT_TLS) {
          sizes[name] = static_cast<long>(symbol.st_size);
        }
      });
  return sizes;
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

bool is_archive(const std::string& image) {
  return image.compare(0, SARMAG, ARMAG) == 0 ||
         image.compare(0, SARMAG, kThin) == 0;
}

std::vector<Member> read_archive(const std::string& file,
                                 const std::string& image) {
  const bool thin = image.compare(0, SARMAG, kThin) == 0;
  std::vector<Member> members;
  std::string long_names;
  std::size_t at = SARMAG;
  while (at + sizeof(ar_hdr) <= image.size()) {
    const ar_hdr header = header_at(image, at);
    at += sizeof header;
    const std::size_t bytes = bytes_of(header);
    std::string name(header.ar_name, sizeof header.ar_name);
    name.erase(name.find_last_not_of(' ') + 1);
    const bool is_file = name != "//" && name != "/" && name != "/SYM64/";
    const std::string content = is_file && thin ? "" : image.substr(at, bytes);
    if (!is_file || !thin) at += bytes + bytes % 2;
    if (name == "//") long_names = content;
    if (!is_file) continue;
    std::size_t origin = 0;
    if (name[0] == '/') {
      char* end = nullptr;
      const std::size_t begin = std::strtoull(name.c_str() + 1, &end, 10);
      if (*end == ':') origin = std::strtoull(end + 1, nullptr, 10);
      name = long_names.substr(std::min(begin, long_names.size()));
      name.erase(std::min(name.find("/\n"), name.size()));
    } else if (!name.empty() && name.back() == '/') {
      name.pop_back();
    }
    members.push_back(thin ? outside(file, name, origin)
                           : Member{name, content});
  }
  return members;
}

}  // namespace swcc
