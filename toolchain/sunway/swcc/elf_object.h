#ifndef SWAMP_TOOLCHAIN_SWCC_ELF_OBJECT_H_
#define SWAMP_TOOLCHAIN_SWCC_ELF_OBJECT_H_

#include <map>
#include <set>
#include <string>

namespace swcc {

// ElfObject is a relocatable x86-64 object file.
class ElfObject {
 public:
  static bool is_one(const std::string& image);
  explicit ElfObject(std::string image);

  // is_slave() returns whether swcc compiled it for slaves.
  bool is_slave() const { return has_section(".swamp.slave"); }
  // checked() is the same source, compiled for check mode; empty if not there.
  std::string checked() const { return section(".swamp.check"); }

  // functions() are the names of the functions that others see; undefined() the
  // names that it needs.
  std::set<std::string> functions() const;
  std::set<std::string> undefined() const;

  // renamed() is the object with other names for its symbols, also where they
  // stand for a group of sections of which the linker keeps one.
  std::string renamed(const std::map<std::string, std::string>& names) const;
  // code_groups() are the names of the groups that hold code, or tables of
  // virtual functions: slaves must not get the master's.
  std::set<std::string> code_groups() const;
  bool has_section(const std::string& name) const;

 private:
  std::string section(const std::string& name) const;

  std::string image_;
};

}  // namespace swcc

#endif  // SWAMP_TOOLCHAIN_SWCC_ELF_OBJECT_H_
