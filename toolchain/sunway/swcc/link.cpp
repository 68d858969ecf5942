// Links a program twice: of the objects for check mode, as an image that the
// program contains, and of the ordinary ones. Functions of slaves get the
// prefix slave_ in both, also those of archives. Mistakes such as slave code on
// the master's side are found before.
#include <elf.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>

#include "toolchain/sunway/swcc/actions.h"
#include "toolchain/sunway/swcc/object.h"
#include "toolchain/sunway/swcc/subprocess.h"

namespace swcc {
namespace {

// Part is one input of the linker.
struct Part {
  std::string word;        // a file or -lNAME
  bool rewritten = false;  // the linker gets other files instead
  bool archive = false;
  bool slave = false;           // has slave code
  std::vector<Member> members;  // one for an object; several for one of swld
  std::string file;
};

using Names = std::map<std::string, std::string>;

// Temporary files, and how the linker's messages should name them.
Names shown;

// archive_of() returns the file of -lNAME in the folders of -L, or "".
std::string archive_of(const Options& options, const std::string& word) {
  for (const std::string& folder_name : options.library_folders) {
    const std::string file = folder_name + "/lib" + word.substr(2) + ".a";
    if (std::filesystem::exists(file)) return file;
  }
  return "";
}

// add_members() adds the object, or the members of the archive and of archives
// in it. It fails if one is not for this computer.
void add_members(const std::string& file, const std::string& name,
                 const std::string& image, Part& part) {
  if (is_archive(image)) {
    for (const Member& member : read_archive(file, image)) {
      add_members(file, member.name, member.image, part);
    }
    return;
  }
  const int machine = ElfObject::machine_of(image);
  if (machine != EM_NONE && machine != EM_X86_64) {
    char number[16];
    std::snprintf(number, sizeof number, "0x%x",
                  static_cast<unsigned>(machine));
    fail(file + ": is for the real machine: " + name + ": got ELF machine " +
         number + ", expected an object that swcc compiled from its source");
  }
  if (ElfObject::is_one(image) && ElfObject(image).is_joined()) {
    fail(
        file + ": " + name +
        ": ld -r joined several objects of swcc; use swld -r instead of ld -r");
  }
  if (part.archive || ElfObject::is_one(image)) {
    part.members.push_back({name, image});
  }
}

Part read_part(const Options& options, const std::string& input) {
  Part part{input, false, false, false, {}, ""};
  std::string file = input;
  if (input.rfind("-l", 0) == 0) {
    file = archive_of(options, input);
    if (file.empty()) return part;
  } else if (is_source(named(options, input))) {
    if (options.side == Options::Side::slave) {
      fail(input +
           ": slave code alone is not a program; compile it with -mslave "
           "-c and link with -mhybrid");
    }
    part.word = file = temporary_file(".o");
    shown[file] = std::filesystem::path(input).filename();
    compile_file(options, input, file);
  }
  part.file = file;
  const std::string image = read_file(file);
  const std::filesystem::path path(file);
  // What swld -r makes is an archive, too, but all of it is linked.
  part.rewritten = is_archive(image) && path.extension() == ".o";
  part.archive = is_archive(image) && !part.rewritten;
  const auto temporary = shown.find(file);
  add_members(
      file,
      temporary != shown.end() ? temporary->second : path.filename().string(),
      image, part);
  for (const Member& member : part.members) {
    if (!ElfObject::is_one(member.image)) continue;
    const ElfObject object(member.image);
    part.slave = part.slave || object.is_slave();
    part.rewritten =
        part.rewritten || part.slave || object.has_section(".swamp.check");
  }
  return part;
}

template <class Visit>
void for_objects(const std::vector<Part>& parts, Visit visit) {
  for (const Part& part : parts) {
    for (const Member& member : part.members) {
      if (ElfObject::is_one(member.image)) {
        visit(member, ElfObject(member.image));
      }
    }
  }
}

// prefixed() returns the name of a slave's function in the program. A name that
// has the prefix is not changed, unless the master uses it with two prefixes.
std::string prefixed(const std::string& name,
                     const std::set<std::string>& wanted) {
  const std::string with = "slave_" + name;
  const bool has = name.rfind("slave_", 0) == 0;
  return has && wanted.count(with) == 0 ? name : with;
}

// names_of() returns the names of this kind of the master's objects or of all.
std::set<std::string> names_of(const std::vector<Part>& parts,
                               std::set<std::string> (ElfObject::*kind)() const,
                               bool masters) {
  std::set<std::string> all;
  for_objects(parts, [&](const Member&, const ElfObject& object) {
    if (!masters || !object.is_slave()) all.merge((object.*kind)());
  });
  return all;
}

// slave_names() maps the functions of slave objects to their new names.
Names slave_names(const std::vector<Part>& parts,
                  const std::set<std::string>& wanted) {
  Names names;
  for_objects(parts, [&](const Member& member, const ElfObject& object) {
    if (!object.is_slave()) return;
    const std::string checked = object.checked();
    for (const std::string& image : {member.image, checked}) {
      if (image.empty()) continue;
      const ElfObject one(image);
      std::set<std::string> all = one.functions();
      all.merge(one.code_groups());
      for (const std::string& name : all) names[name] = prefixed(name, wanted);
    }
  });
  if (names.count("main") != 0) {
    fail("main() is compiled for slaves (-mslave); it is the master's: -mhost");
  }
  return names;
}

// require_slave_code() fails, as the real linker does, if slave code calls a
// function that only the master has.
void require_slave_code(const std::vector<Part>& parts, const Names& names) {
  const std::set<std::string> host =
      names_of(parts, &ElfObject::functions, true);
  for_objects(parts, [&](const Member& member, const ElfObject& object) {
    if (!object.is_slave()) return;
    for (const std::string& name : object.undefined()) {
      if (names.count(name) == 0 && host.count(name) != 0) {
        fail(member.name + ": slave code calls " + name +
             "(), which is compiled for the master only; compile it with "
             "-mslave, too");
      }
    }
  });
}

// require_slave_side() fails if a slave function was compiled for the master.
void require_slave_side(const std::vector<Part>& parts, const Names& names) {
  const std::set<std::string> wanted =
      names_of(parts, &ElfObject::undefined, false);
  for_objects(parts, [&](const Member& member, const ElfObject& object) {
    if (object.is_slave()) return;
    for (const std::string& name : object.functions()) {
      if (wanted.count("slave_" + name) != 0 && names.count(name) == 0) {
        fail(member.name + ": the master spawns " + name +
             "(), which is compiled for the master; compile it with -mslave "
             "-c, and link with -mhybrid");
      }
    }
  });
}

// Renames are files of lines "OLD NEW" for objcopy.
struct Renames {
  std::string slave;
  std::string checked_slave, checked_host;  // for the objects of check mode
};

Renames write_renames(const Names& names) {
  const auto write = [](const Names& pairs) {
    std::string lines;
    for (const auto& [from, to] : pairs) {
      if (from != to) lines += from + " " + to + "\n";
    }
    std::string file = temporary_file(".txt");
    write_file(file, lines);
    return file;
  };
  Names calls;
  for (const char* name : {"memcpy", "memmove", "memset"}) {
    calls.emplace(name, std::string("swamp_checked_") + name);
  }
  Names all = names;
  all.insert(calls.begin(), calls.end());
  return {write(names), write(all), write(calls)};
}

// rewritten() returns a file with the member as the program gets it.
std::string rewritten(const Member& member, const Renames& renames,
                      bool check) {
  // The compiler driver recognises objects by their ending.
  std::string file = temporary_file("-" + member.name + ".o");
  shown[file] = member.name;
  const bool slave =
      ElfObject::is_one(member.image) && ElfObject(member.image).is_slave();
  const std::string checked = check && ElfObject::is_one(member.image)
                                  ? ElfObject(member.image).checked()
                                  : "";
  write_file(file, checked.empty() ? member.image : checked);
  const std::string& names = checked.empty() ? renames.slave
                             : slave         ? renames.checked_slave
                                             : renames.checked_host;
  if (slave || !checked.empty()) {
    run_or_exit({"objcopy", "--redefine-syms=" + names, file});
  }
  return file;
}

void write_archive(const std::string& archive, const Words& files) {
  Words command{"ar", "rcs", archive};
  command.insert(command.end(), files.begin(), files.end());
  run_or_exit(command);
}

// words_of() returns what the linker gets for a part.
Words words_of(const Part& part, const Renames& renames, bool check) {
  if (!part.rewritten) return {part.word};
  Words files;
  for (const Member& member : part.members) {
    files.push_back(rewritten(member, renames, check));
  }
  if (!part.archive) return files;
  const std::string archive = temporary_file(".a");
  shown[archive] = part.file;
  for (std::size_t i = 0; i < files.size(); ++i) {  // its members
    shown["(" + std::filesystem::path(files[i]).filename().string() + ")"] =
        "(" + part.members[i].name + ")";
  }
  write_archive(archive, files);
  return {archive};
}

Words link_command(const Options& options, const std::vector<Part>& parts,
                   const Renames& renames, bool check,
                   const std::string& output) {
  Words command{"g++", "-pthread"};
  command.insert(command.end(), options.rest.begin(), options.rest.end());
  command.push_back("-o");
  command.push_back(output);
  for (const Part& part : parts) {
    const Words words = words_of(part, renames, check);
    command.insert(command.end(), words.begin(), words.end());
  }
  for (const std::string& name : options.library_folders) {
    command.push_back("-L" + name);
  }
  command.push_back("-L" + places().library);
  command.push_back("-Wl,--no-as-needed,-rpath," + places().library);
  command.push_back("-lswamp_sunway");
  command.push_back("-lm");
  return command;
}

// assembled() returns the object of these lines of assembly.
std::string assembled(const std::string& lines) {
  const std::string source = temporary_file(".s");
  write_file(source, lines + "\t.section .note.GNU-stack,\"\",@progbits\n");
  std::string object = temporary_file(".o");
  run_or_exit({"gcc", "-c", source, "-o", object});
  return object;
}

// bounds_object() returns an object with the bounds of a section of variables.
std::string bounds_object(const std::string& section) {
  return assembled(
      "\t.section .data.rel.ro,\"aw\",@progbits\n"
      "\t.balign 8\n"
      "\t.globl " +
      section + "_bounds\n" + "\t.weak __start_" + section + ", __stop_" +
      section + "\n" + section + "_bounds:\n" + "\t.quad __start_" + section +
      ", __stop_" + section + "\n");
}

// cached_object() returns "" or, if a variable is __uncached in some objects,
// but another defines it without that, an object that tells SWAMP_CHECK_CACHE=1
// so. It fails if the sizes of an __uncached variable differ: the linker may
// take the smallest.
std::string cached_object(const std::vector<Part>& parts) {
  struct Seen {
    std::string member;
    Variable variable;
  };
  std::map<std::string, std::vector<Seen>> all;
  for_objects(parts, [&](const Member& member, const ElfObject& object) {
    for (const auto& [name, one] : object.variables()) {
      all[name].push_back({member.name, one});
    }
    for (const std::string& name : object.uncached_declarations()) {
      all[name].push_back({member.name, {true}});
    }
  });
  std::string cached;
  for (const auto& [name, seen] : all) {
    // A definition, if one is __uncached, otherwise a declaration.
    const auto inside = std::max_element(
        seen.begin(), seen.end(), [](const Seen& a, const Seen& b) {
          const Variable &first = a.variable, &second = b.variable;
          return first.uncached * (1 + (first.bytes != 0)) <
                 second.uncached * (1 + (second.bytes != 0));
        });
    if (!inside->variable.uncached) continue;
    for (const Seen& one : seen) {
      if (inside->variable.bytes != 0 && one.variable.bytes != 0 &&
          one.variable.bytes != inside->variable.bytes) {
        fail(name + ": got " + std::to_string(one.variable.bytes) +
             " bytes in " + one.member + ", expected " +
             std::to_string(inside->variable.bytes) + " as in " +
             inside->member + ", where it is __uncached");
      }
      if (!one.variable.uncached) {
        cached = name + " is __uncached in " + inside->member +
                 ", but not in " + one.member;
      }
    }
  }
  if (cached.empty()) return "";
  return assembled(
      "\t.section .rodata.swamp_uncached_unknown,\"a\",@progbits\n"
      "\t.weak swamp_uncached_unknown\n"
      "swamp_uncached_unknown:\n"
      "\t.string \"" +
      cached + "\"\n");
}

// image_object() returns an object that holds a file between two symbols.
std::string image_object(const std::string& file) {
  return assembled(
      "\t.section .rodata.swamp_check,\"a\",@progbits\n"
      "\t.balign 16\n"
      "\t.globl swamp_check_image, swamp_check_image_end\n"
      "swamp_check_image:\n"
      "\t.incbin \"" +
      file +
      "\"\n"
      "swamp_check_image_end:\n");
}

// join() makes one file of the objects and archives, as ld -r does. Because
// functions of slaves get their prefix at the link, it is an archive.
void join(const std::vector<Part>& parts, const std::string& output) {
  Words files;
  for (const Part& part : parts) {
    for (const Member& member : part.members) {
      files.push_back(temporary_file("-" + member.name));
      write_file(files.back(), member.image);
    }
  }
  if (files.empty()) fail("-r: no objects");
  std::error_code none;
  std::filesystem::remove(output, none);
  write_archive(output, files);
}

LdmMap ldm_map(const std::vector<Part>& parts, const Names& names,
               const std::set<std::string>& wanted) {
  LdmMap map;
  for_objects(parts, [&](const Member& member, const ElfObject& object) {
    if (!object.is_slave()) return;
    map.call_graphs.push_back(object.call_graph());
    for (const auto& [name, bytes] : object.thread_locals()) {
      map.variables.push_back({name, bytes, member.name});
    }
  });
  for (const auto& [name, prefixed_name] : names) {
    if (wanted.count(prefixed_name) != 0) map.kernels.insert(name);
  }
  return map;
}

// run_linker() runs a command and ends swcc if it fails. Messages name what the
// user knows instead of temporary files.
void run_linker(const Words& command) {
  const std::string errors = temporary_file(".txt");
  const int code = run(command, errors);
  std::string text = read_file(errors);
  for (const auto& [file, name] : shown) {
    for (std::size_t at = 0; (at = text.find(file, at)) != std::string::npos;
         at += name.size()) {
      text.replace(at, file.size(), name);
    }
  }
  std::fputs(text.c_str(), stderr);
  if (code != 0) leave(code);
}

}  // namespace

void link(const Options& options) {
  if (options.inputs.empty()) fail("no input files");
  const std::string output = options.output.empty() ? "a.out" : options.output;
  std::vector<Part> parts;
  bool slaves = false;
  for (const std::string& input : options.inputs) {
    parts.push_back(read_part(options, input));
    slaves = slaves || parts.back().slave;
  }
  if (slaves && options.shared) {
    fail(
        "-shared: slave code in a shared library is not emulated; make a "
        "static one");
  }
  if (options.relocatable) {
    join(parts, output);
    return;
  }
  const std::set<std::string> wanted =
      names_of(parts, &ElfObject::undefined, true);
  const Names names = slave_names(parts, wanted);
  const Renames renames = write_renames(names);
  require_slave_code(parts, names);
  require_slave_side(parts, names);
  std::set<std::string> sections;
  for_objects(parts, [&](const Member&, const ElfObject& object) {
    for (const char* name :
         {"swamp_shared_ldm", "swamp_uncached", "swamp_uncached_zero"}) {
      if (object.has_section(name)) sections.insert(name);
    }
  });
  for (const std::string& name : sections) {
    parts.push_back({bounds_object(name), false, false, false, {}, ""});
  }
  const std::string cached = cached_object(parts);
  if (!cached.empty()) {
    parts.push_back({cached, false, false, false, {}, ""});
  }
  const auto fortran = wanted.lower_bound("_gfortran_");
  if (fortran != wanted.end() && fortran->rfind("_gfortran_", 0) == 0) {
    parts.push_back({"-lgfortran", false, false, false, {}, ""});
  }
  Words command = link_command(options, parts, renames, false, output);
  if (slaves) {
    const std::string checked = temporary_file("");
    remove_on_failure(output);  // an older one
    run_linker(link_command(options, parts, renames, true, checked));
    command.push_back(image_object(checked));
  }
  run_linker(command);
  remove_on_failure("");
  if (options.ldm_map) print_ldm_map(ldm_map(parts, names, wanted), output);
}

}  // namespace swcc
