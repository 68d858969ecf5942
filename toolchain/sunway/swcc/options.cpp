// Options of swcc become options of gcc, are ignored, or end swcc because they
// are not emulated. The tables at the start of the file say which.
#include "toolchain/sunway/swcc/options.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <utility>

#include "toolchain/sunway/swcc/subprocess.h"

namespace swcc {
namespace {

bool starts(const std::string& text, const char* with) {
  return text.rfind(with, 0) == 0;
}

bool ends(const std::string& text, const std::string& with) {
  return text.size() >= with.size() &&
         text.compare(text.size() - with.size(), with.size(), with) == 0;
}

bool one_of(const std::string& text, std::initializer_list<const char*> list) {
  return std::any_of(list.begin(), list.end(),
                     [&](const char* entry) { return text == entry; });
}

std::string extension(const std::string& file) {
  const std::size_t dot = file.rfind('.');
  const std::size_t slash = file.rfind('/');
  if (dot == std::string::npos || (slash != std::string::npos && dot < slash)) {
    return "";
  }
  return file.substr(dot + 1);
}

// ignored() returns whether this is an option of the vendor's compiler that has
// no effect on the emulation.
bool ignored(const std::string& word) {
  return starts(word, "-faddress_align") || starts(word, "-OPT:") ||
         starts(word, "-LNO:") || starts(word, "-TENV:") ||
         starts(word, "-CG:") || starts(word, "-WOPT:") ||
         starts(word, "-IPA:") || starts(word, "-msw") ||
         starts(word, "-mieee") || starts(word, "-mgprel-size") ||
         // Objects for a link-time optimisation have no symbols, by which swcc
         // recognises the functions of slaves, and no copy for check mode.
         starts(word, "-flto") ||
         one_of(word, {"-ffat-lto-objects", "-fno-fat-lto-objects",
                       "-fuse-linker-plugin", "-fno-use-linker-plugin"}) ||
         one_of(word,
                {"-mdynamic", "-static", "-lm_slave", "-lathread", "-lcrts",
                 "-lslave", "-lswperf", "-fcheck-ldm-stack", "-mftz",
                 "-Wl,--stack-analysis", "-allshare", "-ipa",
                 "-fbranch-predict-hint", "-funroll-nest-loops", "-cpp", "-mp",
                 // of x86, too, where products would then be rounded
                 // differently on some computers
                 "-mfma"});
}

// takes_value() returns whether the next word is the value of this gcc option.
bool takes_value(const std::string& word) {
  return one_of(word, {"-include", "-isystem", "-idirafter",  "-iquote",
                       "-imacros", "-Xlinker", "-Xassembler", "-Xpreprocessor",
                       "-MF",      "-MT",      "-MQ",         "-T",
                       "-u",       "-z",       "-I",          "-D",
                       "-U",       "--param",  "-aux-info",   "-e"});
}

bool set_side(const std::string& word, Options& options) {
  using Side = Options::Side;
  if (word == "-mhost" || word == "-host") {
    options.side = Side::host;
  } else if (word == "-mslave" || word == "-slave") {
    options.side = Side::slave;
  } else if (word == "-mhybrid" || word == "-hybrid") {
    options.side = Side::hybrid;
  } else {
    return false;
  }
  if (word[1] != 'm') options.old = true;
  return true;
}

// split() splits a text at white space; quotes and backslashes work as in a
// shell.
Words split(const std::string& text) {
  Words words;
  std::string word;
  bool inside = false;
  char quote = '\0';
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote == '\0' && std::isspace(static_cast<unsigned char>(c)) != 0) {
      if (inside) words.push_back(word);
      word.clear();
      inside = false;
      continue;
    }
    inside = true;
    if (c == '\\' && i + 1 < text.size()) {
      word += text[++i];
    } else if (c == quote) {
      quote = '\0';
    } else if (quote == '\0' && (c == '"' || c == '\'')) {
      quote = c;
    } else {
      word += c;
    }
  }
  if (inside) words.push_back(word);
  return words;
}

}  // namespace

void fail(const std::string& line) {
  std::fprintf(stderr, "swcc: %s\n", line.c_str());
  leave(1);
}

std::string named(const Options& options, const std::string& file) {
  const auto found = options.languages.find(file);
  if (found == options.languages.end()) return file;
  constexpr std::pair<const char*, const char*> kEndings[] = {
      {"c", ".c"},          {"c++", ".cpp"},
      {"cpp-output", ".i"}, {"c++-cpp-output", ".ii"},
      {"assembler", ".s"},  {"assembler-with-cpp", ".S"}};
  for (const auto& [language, ending] : kEndings) {
    if (found->second == language) return file + ending;
  }
  return file;
}

bool makes_objects(const Options& options) {
  const auto has = [&](const char* word) {
    return std::find(options.rest.begin(), options.rest.end(), word) !=
           options.rest.end();
  };
  return options.action == Options::Action::link ||
         (has("-c") && !has("-S") && !has("-E") && !has("-M") && !has("-MM") &&
          !has("-fsyntax-only"));
}

void read_standard_input(Options& options) {
  const auto input =
      std::find(options.inputs.begin(), options.inputs.end(), "-");
  if (input == options.inputs.end()) return;
  if (options.languages.count("-") == 0) {
    fail("-E or -x required when input is from standard input");
  }
  const std::string ending = extension(named(options, "-"));
  if (ending.empty()) return;
  *input = temporary_file("-stdin." + ending);
  const bool preprocessed = one_of(ending, {"i", "ii", "s"});
  write_file(*input, (preprocessed ? "# 1 " : "#line 1 ") +
                         std::string("\"<stdin>\"\n") +
                         read_file("/dev/stdin"));
  // Its headers are searched for in the current folder.
  options.rest.insert(options.rest.begin(), {"-iquote", "."});
  if (options.action == Options::Action::compile && options.output.empty()) {
    options.output = "./-.o";
  }
}

bool is_source(const std::string& file) {
  return is_cplusplus(file) || is_fortran(file) ||
         one_of(extension(file), {"c", "i", "s", "S", "sx"});
}

bool is_fortran(const std::string& file) {
  return one_of(extension(file),
                {"f", "F", "for", "FOR", "ftn", "f77", "F77", "f90", "F90",
                 "f95", "F95", "f03", "F03", "f08", "F08"});
}

bool is_cplusplus(const std::string& file) {
  return one_of(extension(file),
                {"cc", "cp", "cxx", "cpp", "CPP", "c++", "C", "ii"});
}

std::string usage() {
  return "usage: swcc [-mhost | -mslave | -mhybrid] [OPTION...] FILE...\n"
         "\n"
         "Compiles and links athread/CRTS programs, in C and C++, for the "
         "Sunway\n"
         "machine that swamp emulates on this computer. Other options are "
         "gcc's.\n"
         "\n"
         "  -mhost,   -host     compile for the master core (the default)\n"
         "  -mslave,  -slave    compile for the slave cores\n"
         "  -mhybrid, -hybrid   link both\n"
         "  -msimd              short vectors (<simd.h>)\n"
         "  -mldm-map           with -mhybrid: print what fills LDM\n"
         "\n"
         "  swcc -mhost -c main.c && swcc -mslave -c kernel.c\n"
         "  swcc -mhybrid main.o kernel.o -o program\n"
         "  SWAMP_MACHINE=sw26010 ./program     4 core groups, 64 KiB of LDM\n"
         "  SWAMP_TRANSFER=check ./program      find bugs; exit code 86 if "
         "any\n"
         "  SWAMP_PREDICT=1 ./program           transfers and their time; "
         "with\n"
         "                                      =lines also by source line\n"
         "  SWAMP_TRACE=FILE ./program          a trace for Perfetto\n"
         "\n"
         "Fortran is for the master, and needs gfortran: swcc -mhost -c "
         "main.f90.\n"
         "Called as swg++, sw++ or sw9g++ it compiles all files as C++; as\n"
         "swar it is ar, and as swld -r it joins objects of both sides.\n"
         "\n"
         "Environment:\n"
         "  SWAMP_MACHINE          sw26010pro (default), sw26010\n"
         "  SWAMP_CORE_GROUPS      1 to 6; SWAMP_LDM_BYTES\n"
         "  SWAMP_TRANSFER         copy (default), check\n"
         "  SWAMP_CHECK_SEED       a different order of the slaves: 1, 2, ...\n"
         "  SWAMP_CHECK_SCHEDULES  number of further orders in which each "
         "spawn "
         "runs, 0 to 1000; 1:SEED only that of a report\n"
         "  SWAMP_CHECK_HALT=1     end at the first report\n"
         "  SWAMP_CHECK_REPORT     a file for the reports, in JSON lines\n"
         "  SWAMP_CHECK_SUPPRESS   a file of reports that are meant, lines of "
         "CATEGORY\n"
         "                         FILE:LINE\n"
         "  SWAMP_CHECK_TIMEOUT    seconds without progress before a hang is "
         "reported: 8\n"
         "  SWAMP_CHECK_MAIN_ACCESS=1  report direct access to main memory\n"
         "  SWAMP_CHECK_CACHE=1    report stale reads of the slaves' data "
         "caches\n";
}

Words expanded(const Words& words) {
  constexpr std::size_t kMostFiles =
      2000;  // gcc's limit, since a file may include itself
  Words left(words.rbegin(), words.rend());
  Words all;
  std::size_t files = 0;
  while (!left.empty()) {
    const std::string word = left.back();
    left.pop_back();
    std::ifstream file;
    if (word.size() > 1 && word[0] == '@') {
      file.open(word.substr(1), std::ios::binary);
    }
    if (!file.is_open()) {
      all.push_back(word);
      continue;
    }
    if (++files > kMostFiles) fail(word + ": too many @-files");
    const Words inside =
        split(std::string((std::istreambuf_iterator<char>(file)), {}));
    left.insert(left.end(), inside.rbegin(), inside.rend());
  }
  return all;
}

std::string tool(const std::string& name) {
  if (starts(name, "sw") && ends(name, "ranlib")) return "ranlib";
  return starts(name, "sw") && ends(name, "ar") ? "ar" : "";
}

namespace {

// refuse_unemulated() ends swcc if a word asks for what is not emulated.
void refuse_unemulated(const std::string& word) {
  if (word == "-mslave-bf16") {
    fail("-mslave-bf16: bf16 as _Float16 is not emulated");
  }
  if (starts(word, "-fsanitize=") &&
      (word.find("thread") != std::string::npos ||
       word.find("hwaddress") != std::string::npos)) {
    fail(word +
         ": not for Sunway programs; SWAMP_TRANSFER=check finds races of "
         "slaves, -fsanitize=address and undefined are supported");
  }
}

}  // namespace

Options read_options(const std::string& name, const Words& words) {
  Options options;
  options.cplusplus = ends(name, "++") || ends(name, "CC");
  options.relocatable = starts(name, "sw") && ends(name, "ld");
  options.old = starts(name, "sw5");
  using Action = Options::Action;
  std::string language;  // of -x
  const auto add_input = [&](const std::string& word) {
    options.inputs.push_back(word);
    if (!language.empty() && language != "none") {
      options.languages[word] = language;
    }
  };
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const auto next = [&]() -> const std::string& {
      if (i + 1 == words.size()) fail("expected a value after " + word);
      return words[++i];
    };
    // Returns the value of an option of two characters: this or the next word.
    const auto value = [&] {
      return word.size() > 2 ? word.substr(2) : next();
    };
    if (set_side(word, options) || ignored(word)) continue;
    refuse_unemulated(word);
    if (word == "-mldm-map") {
      options.ldm_map = true;
    } else if (word == "-msimd") {
      options.simd = true;
    } else if (word == "-c" || word == "-S" || word == "-E" || word == "-M" ||
               word == "-MM" || word == "-fsyntax-only") {
      options.action = Action::compile;
      options.rest.push_back(word);
    } else if (word == "--version" || word == "-v" || word == "-###" ||
               starts(word, "-dump") || starts(word, "-print-") ||
               starts(word, "--print-")) {
      options.rest.push_back(word);
      if (word != "-v" || words.size() == 1) options.action = Action::pass;
    } else if (starts(word, "-o") && word != "-openmp") {
      options.output = value();
    } else if (starts(word, "-L")) {
      options.library_folders.push_back(value());
    } else if (starts(word, "-l")) {
      const std::string library = "-l" + value();
      if (!ignored(library)) options.inputs.push_back(library);
    } else if (word == "-") {
      add_input(word);
    } else if (starts(word, "-x")) {
      language = value();
    } else if (takes_value(word)) {
      options.rest.push_back(word);
      options.rest.push_back(next());
    } else if (word == "-r" || word == "-Ur") {
      options.relocatable = true;
    } else if (starts(word, "-")) {
      if (starts(word, "-g")) options.debug = true;
      if (word == "-shared") options.shared = true;
      if (starts(word, "-std=")) options.standard = word.substr(5);
      options.rest.push_back(word);
    } else {
      add_input(word);
    }
  }
  return options;
}

}  // namespace swcc
