#ifndef SWAMP_TOOLCHAIN_SWCC_OBJECT_H_
#define SWAMP_TOOLCHAIN_SWCC_OBJECT_H_

#include <map>
#include <set>
#include <string>
#include <vector>

namespace swcc {

struct Variable {
  bool uncached = false;
  bool tentative = false;  // that, with no initial value but 0, and not weak
  long bytes = 0;
};

// ElfObject reads a relocatable x86-64 object file; objcopy rewrites it. nm and
// readelf do not replace the reading: whether a section group holds code takes
// three tables of readelf, whose text is meant for people and translated. To
// parse them is not shorter, and it takes a process for each object.
class ElfObject {
 public:
  static bool is_one(const std::string& image);
  // machine_of() returns the machine of an ELF file, for example EM_X86_64, or
  // EM_NONE if the image is something else.
  static int machine_of(const std::string& image);
  explicit ElfObject(std::string image);

  // is_slave() returns whether swcc compiled the object for slaves.
  bool is_slave() const { return has_section(".swamp.slave"); }
  // is_joined() returns whether `ld -r` made it of several objects of swcc.
  bool is_joined() const {
    return section(".swamp.slave").size() + section(".swamp.host").size() > 1;
  }
  // checked() returns the object of the same source that was compiled for check
  // mode, or "" if there is none.
  std::string checked() const { return section(".swamp.check"); }

  // call_graph() returns what gcc -fcallgraph-info=su wrote, or "".
  std::string call_graph() const { return section(".swamp.calls"); }
  // thread_locals() returns the variables of each slave and their sizes.
  std::map<std::string, long> thread_locals() const;

  // functions() returns the names of the functions that the object defines for
  // other objects, undefined() the names that it needs.
  std::set<std::string> functions() const;
  std::set<std::string> undefined() const;
  // variables() returns what the object defines for other objects, and
  // uncached_declarations() the __uncached variables that it only declares.
  std::map<std::string, Variable> variables() const;
  std::set<std::string> uncached_declarations() const;
  // code_groups() returns the names of the section groups, of which the linker
  // keeps one, that hold code or tables of virtual functions. Slaves and the
  // master must not share these.
  std::set<std::string> code_groups() const;
  bool has_section(const std::string& name) const;

 private:
  std::string section(const std::string& name) const;

  std::string image_;
};

// Member is a file in an archive.
struct Member {
  std::string name;
  std::string image;
};

bool is_archive(const std::string& image);
// read_archive() returns the members that are files, in order. The members of a
// thin archive are separate files, named relative to the folder of `file`. `ar
// x` cannot replace this: it refuses thin archives, and extracts members with
// equal names onto each other.
std::vector<Member> read_archive(const std::string& file,
                                 const std::string& image);

}  // namespace swcc

#endif  // SWAMP_TOOLCHAIN_SWCC_OBJECT_H_
