// Compiles a source with gcc, a rewritten copy of it if gcc refuses it, and a
// second time with a call before every load and store, for check mode; the
// second object becomes a section of the first one. See HACKING.md.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "toolchain/sunway/swcc/actions.h"
#include "toolchain/sunway/swcc/object.h"
#include "toolchain/sunway/swcc/subprocess.h"
#include "toolchain/sunway/swcc/tokens.h"

namespace swcc {
namespace {

bool has(const Words& words, const char* word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// without_dependencies() removes -MD and the like, so that only the first pass
// writes dependencies.
Words without_dependencies(const Words& words) {
  Words kept;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "-MF" || word == "-MT" || word == "-MQ") {
      ++i;
    } else if (word != "-MD" && word != "-MMD" && word != "-MP") {
      kept.push_back(word);
    }
  }
  return kept;
}

std::string ending_of(const Options& options, const std::string& source) {
  return std::filesystem::path(named(options, source)).extension();
}

bool compiles_cplusplus(const Options& options, const std::string& source) {
  return options.cplusplus || is_cplusplus(named(options, source));
}

// call_graph_file() is where gcc writes the call graph of slave code: the file
// with the ending .ci.
const std::string& call_graph_file() {
  static const std::string name = temporary_file("");
  return name;
}

// fortran_compiler() returns the name of gfortran, which may be absent.
std::string fortran_compiler(const std::string& source) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    for (const char* name : {"/gfortran", "/gfortran-12"}) {
      if (file_exists(folder + name)) return folder + name;
    }
  }
  fail(source +
       ": gfortran is not installed (on Debian: apt install gfortran)");
}

// flags() returns the options that come before the user's.
Words flags(const Options& options, const std::string& source) {
  const bool slave = options.side == Options::Side::slave;
  if (is_fortran(named(options, source))) {
    if (slave) {
      fail(source + ": slave code in Fortran is not emulated; write it in C");
    }
    Words all{"-pthread", "-fno-optimize-sibling-calls"};
    if (!options.debug) all.push_back("-g1");
    return all;
  }
  Words all{"-isystem",
            places().include,
            "-pthread",
            "-Wno-psabi",
            "-fno-optimize-sibling-calls",
            slave ? "-D__sw_slave__" : "-D__sw_host__"};
  if (options.uncached == Options::Uncached::unknown) {
    all.push_back("-DSWAMP_SUNWAY_UNCACHED_UNKNOWN");
  } else if (options.uncached == Options::Uncached::data ||
             !makes_objects(options)) {
    all.push_back("-DSWAMP_SUNWAY_UNCACHED_DATA");
  }
  if (options.simd) all.push_back(slave ? "-D_SIMD_SLAVE" : "-D_SIMD_HOST");
  if (!options.debug) all.push_back("-g1");  // line numbers for reports
  const bool cplusplus = compiles_cplusplus(options, source);
  if (!cplusplus) all.push_back("-fcommon");  // default of the vendor's GCC 7
  if (!cplusplus && options.old && options.standard.empty())
    all.push_back("-fgnu89-inline");
  if (slave && cplusplus) all.push_back("-fno-extern-tls-init");
  if (slave) {
    // A frame larger than what is left of the stack faults at the guard page.
    all.push_back("-fstack-clash-protection");
    // Addresses in another slave's LDM may lead to local variables of which
    // only an integer had the address.
    all.push_back("-fno-tree-pta");
    // In the model local-exec gcc adds their bit to the offset of a variable,
    // which has 32 bits. The model is only changed with -fPIC.
    all.insert(all.end(), {"-fPIC", "-fno-semantic-interposition",
                           "-ftls-model=initial-exec"});
  }
  const std::string ending = ending_of(options, source);
  if (ending == ".s" || ending == ".S") return all;
  if (slave && makes_objects(options)) {
    all.insert(all.end(),
               {"-fcallgraph-info=su", "-dumpbase", call_graph_file()});
  }
  if (ending == ".i" || ending == ".ii") return all;  // preprocessed
  // Inline assembly pushes onto the stack.
  all.push_back("-mno-red-zone");
  Words headers{"assembly.h"};
  if (slave) headers.push_back("mark.h");
  for (const std::string& header : headers) {
    all.push_back("-include");
    all.push_back(places().include + "/swamp_sunway/" + header);
  }
  return all;
}

Words command(const Options& options, const Words& before, const Words& user,
              const std::string& source, const std::string& output) {
  Words all{is_fortran(named(options, source)) ? fortran_compiler(source)
                                               : compiler(options)};
  all.insert(all.end(), before.begin(), before.end());
  all.insert(all.end(), user.begin(), user.end());
  const auto language = options.languages.find(source);
  if (language != options.languages.end()) {
    all.insert(all.end(), {"-x", language->second});
  }
  all.push_back(source);
  if (!output.empty()) {
    all.push_back("-o");
    all.push_back(output);
  }
  return all;
}

// accesses_only() removes the calls for functions from an assembly file of the
// master.
std::string accesses_only(const std::string& assembly) {
  std::istringstream lines(assembly);
  std::string out;
  std::string line;
  while (std::getline(lines, line)) {
    if (line.rfind("\tcall\t__tsan_func_", 0) != 0) out += line + "\n";
  }
  return out;
}

// is_sanitized() returns whether a sanitizer examines the master's code.
bool is_sanitized(const Options& options) {
  return std::any_of(options.rest.begin(), options.rest.end(),
                     [](const std::string& word) {
                       return word.rfind("-fsanitize=", 0) == 0;
                     });
}

// calls_any() returns whether the object calls a function whose name begins
// with one of these.
bool calls_any(const std::string& object, const Words& begins) {
  const std::string image = read_file(object);
  if (!ElfObject::is_one(image)) return false;
  const std::set<std::string> needed = ElfObject(image).undefined();
  return std::any_of(needed.begin(), needed.end(),
                     [&](const std::string& name) {
                       return std::any_of(begins.begin(), begins.end(),
                                          [&](const std::string& begin) {
                                            return name.rfind(begin, 0) == 0;
                                          });
                     });
}

// spawns() returns whether the object calls a function that starts slaves.
bool spawns(const std::string& object) {
  return calls_any(object,
                   {"__real_athread_", "athread_spawn_", "athread_create_"});
}

// weaken_common() makes global __uncached variables without an initializer
// weak: as with -fcommon, several objects may define them.
void weaken_common(const std::string& object) {
  const std::string image = read_file(object);
  if (!ElfObject::is_one(image)) return;
  Words command{"objcopy"};
  for (const auto& [name, variable] : ElfObject(image).variables()) {
    if (variable.tentative) command.push_back("--weaken-symbol=" + name);
  }
  command.push_back(object);
  if (command.size() > 2) run_or_exit(command);
}

// add_checked() compiles a source a second time, with a call for every load and
// store, and adds the result to the object, with the call graph of the first
// time and the names of __uncached variables that others define.
void add_checked(const Options& options, const std::string& source,
                 const std::string& object, const std::string& uncached) {
  const bool slave = options.side == Options::Side::slave;
  Words before = flags(options, source);
  for (const char* flag :
       {"-fsanitize=thread", "--param=tsan-distinguish-volatile=1",
        "-fno-builtin-memcpy", "-fno-builtin-memset", "-fno-builtin-memmove",
        "-w"}) {
    before.push_back(flag);
  }
  if (slave) before.push_back("-fsanitize=bounds");
  const std::string graph = slave ? temporary_file(".ci") : "";
  if (slave) std::filesystem::rename(call_graph_file() + ".ci", graph);
  Words user = without_dependencies(options.rest);
  // AddressSanitizer cannot instrument the same code; it has the first copy.
  const auto is_unfit = [](const std::string& word) {
    return word == "-Werror" || (word.rfind("-fsanitize=", 0) == 0 &&
                                 (word.find("address") != std::string::npos ||
                                  word.find("leak") != std::string::npos));
  };
  user.erase(std::remove_if(user.begin(), user.end(), is_unfit), user.end());
  const std::string checked = temporary_file(".o");
  const std::string assembly = temporary_file(".s");
  // The bounds of local arrays are read from this: emulator/check/locals.cpp.
  user.insert(user.end(), {"-S", "-fno-lto", "-g2", "-gdwarf-4",
                           "-gno-split-dwarf", "-gno-strict-dwarf"});
  if (!options.debug) user.push_back("-fno-var-tracking");
  // The plugin (loops.cpp) makes check mode faster. A gcc of another version
  // than that for which it was built refuses it.
  const std::string plugin = places().library + "/swamp/sunway/swcc_loops.so";
  Words faster = before;
  faster.push_back("-fplugin=" + plugin);
  if (!slave || !file_exists(plugin) ||
      run(command(options, faster, user, source, assembly),
          temporary_file(".txt")) != 0) {
    run_or_exit(command(options, before, user, source, assembly));
  }
  if (!has(user, "-masm=intel")) {
    const std::string text = read_file(assembly);
    write_file(assembly, slave ? with_tests(text) : accesses_only(text));
  }
  run_or_exit({"gcc", "-c", assembly, "-o", checked});
  weaken_common(checked);
  Words add{"objcopy"};
  const auto section = [&](const std::string& name, const std::string& file) {
    add.insert(add.end(), {"--add-section", name + "=" + file,
                           "--set-section-flags", name + "=exclude"});
  };
  section(".swamp.check", checked);
  if (!graph.empty()) section(".swamp.calls", graph);
  if (!uncached.empty()) {
    const std::string names = temporary_file(".txt");
    write_file(names, uncached);
    section(".swamp.uncached", names);
  }
  add.push_back(object);
  run_or_exit(add);
}

// preprocessed() returns the source after gcc -E, or "" if that fails.
std::string preprocessed(const Options& options, const std::string& source,
                         const Words& headers) {
  Words user = without_dependencies(options.rest);
  user.erase(std::remove(user.begin(), user.end(), "-c"), user.end());
  user.push_back("-E");
  for (const std::string& header : headers) {
    user.push_back("-include");
    user.push_back(header);
  }
  const std::string text =
      temporary_file(compiles_cplusplus(options, source) ? ".ii" : ".i");
  const std::string errors = temporary_file(".txt");
  const int code =
      run(command(options, flags(options, source), user, source, text), errors);
  return code == 0 ? read_file(text) : "";
}

// source_of() returns the text of tokens.
std::string source_of(const std::vector<Token>& tokens) {
  std::string out;
  for (const Token& token : tokens) out += token.before + token.text;
  return out;
}

// with_thread_locals() makes a variable thread-local where it is declared with
// `extern` alone, if another declaration of it is thread-local: swgcc takes
// both.
std::string with_thread_locals(const std::string& text) {
  std::vector<Token> tokens = tokens_of(text);
  const auto is_thread = [](const Token& token) {
    return token.text == "__thread" || token.text == "thread_local" ||
           token.text == "_Thread_local";
  };
  std::map<std::string, std::string> local;                 // name, keyword
  std::vector<std::pair<std::string, std::size_t>> shared;  // name, `extern`
  std::size_t begin = 0;  // of the declaration
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    const bool body = i > 0 && tokens[i].text == "{" &&
                      tokens[i - 1].text == ")";  // of a function
    if (tokens[i].text == "{" || tokens[i].text == "(") {
      i = matching(tokens, i);
    }
    if (body) begin = i + 1;
    const std::string& next = tokens[i + 1].text;
    const bool named =
        tokens[i].is_name && (next == ";" || next == "," || next == "=" ||
                              next == "[" || next == "__attribute__");
    if (named) {
      const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto last = tokens.begin() + static_cast<std::ptrdiff_t>(i);
      const auto keyword = std::find_if(first, last, is_thread);
      if (keyword != last) {
        local[tokens[i].text] = keyword->text;
      } else if (first->text == "extern") {
        shared.emplace_back(tokens[i].text, begin);
      }
    }
    if (tokens[i].text == ";") begin = i + 1;
  }
  bool changed = false;
  for (const auto& [name, place] : shared) {
    const auto found = local.find(name);
    if (found == local.end()) continue;
    tokens[place].text = "extern " + found->second;
    changed = true;
  }
  return changed ? source_of(tokens) : text;
}

// with_block_sizes() adds the last argument of athread_get(), the size of a
// block, where it is missing: without a stride it means nothing.
std::string with_block_sizes(const std::string& text) {
  constexpr int kArguments = 8;
  std::vector<Token> tokens = tokens_of(text);
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    if (tokens[i].text != "athread_get" || tokens[i + 1].text != "(") continue;
    const std::size_t close = matching(tokens, i + 1);
    int arguments = 1;
    for (std::size_t at = i + 2; at < close; ++at) {
      const std::string& word = tokens[at].text;
      if (word == "(" || word == "[" || word == "{") at = matching(tokens, at);
      if (word == ",") ++arguments;
    }
    if (arguments == kArguments - 1) tokens[close].text = ", 0)";
  }
  return source_of(tokens);
}

// uncached_declarations() returns the names of the __uncached variables that
// the source declares with `extern`, one a line, and perhaps keywords.
std::string uncached_declarations(const std::string& text) {
  constexpr char kSection[] = "\"swamp_uncached";
  if (text.find(kSection) == std::string::npos) return "";
  const std::vector<Token> tokens = tokens_of(text);
  std::string names;
  std::size_t begin = 0;  // of the declaration
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    const std::string& word = tokens[i].text;
    if (word == ";" || word == "{" || word == "}") begin = i + 1;
    if (word.rfind(kSection, 0) != 0 || tokens[begin].text != "extern") {
      continue;
    }
    for (i = begin; i + 1 < tokens.size() && tokens[i].text != ";"; ++i) {
      std::size_t after = i + 1;
      while (tokens[after].text[0] == '_' && tokens[after + 1].text == "(") {
        after = matching(tokens, after + 1) + 1;  // an attribute
      }
      const std::string& next = tokens[after].text;
      if (tokens[i].text == "(") {
        i = matching(tokens, i);
      } else if (tokens[i].is_name &&
                 (next == ";" || next == "," || next == "[")) {
        names += tokens[i].text + "\n";
      }
    }
    begin = i + 1;
  }
  return names;
}

// with_one_register() leaves out all errors of registers that gcc does not know
// but the first: a block of assembly may name a hundred.
std::string with_one_register(const std::string& errors) {
  std::istringstream lines(errors);
  std::string line, kept;
  bool any = false;
  bool skips = false;
  while (std::getline(lines, line)) {
    if (line.empty() || line[0] != ' ') {
      const bool is_one =
          line.find("error: unknown register name") != std::string::npos;
      skips = is_one && any;
      any = any || is_one;
    }
    if (!skips) kept += line + "\n";
  }
  return kept;
}

// rewritten() compiles a rewritten copy of a source that gcc refused with these
// errors, and returns the copy, or ends swcc with the errors that remain.
std::string rewritten(Options& options, const std::string& source,
                      const std::string& output, const std::string& errors,
                      int code) {
  if (options.uncached == Options::Uncached::zero) {
    options.uncached = Options::Uncached::data;  // it is not assembled yet
  }
  const bool cplusplus = compiles_cplusplus(options, source);
  const Words headers = headers_for(errors);
  const std::string text = preprocessed(options, source, headers);
  std::set<std::string> refused;
  const std::string spelled = with_conversions(
      with_assembly_calls(with_block_sizes(with_thread_locals(text)), cplusplus,
                          refused),
      cplusplus);
  std::string left = errors;
  if (spelled != text || (!text.empty() && !headers.empty())) {
    const std::string file = temporary_file(cplusplus ? ".ii" : ".i");
    const std::string more = temporary_file(".txt");
    write_file(file, spelled);
    const int again =
        run(command(options, flags(options, file),
                    without_dependencies(options.rest), file, output),
            more);
    left = read_file(more);
    if (again == 0) {
      std::fputs(left.c_str(), stderr);
      return file;
    }
    left = remaining_errors(errors, left);
  }
  std::fputs(with_one_register(left).c_str(), stderr);
  const bool assembly =
      left.find("no such instruction") != std::string::npos ||
      left.find("impossible constraint in") != std::string::npos ||
      left.find("unknown register name") != std::string::npos ||
      left.find(" is not emulated in this asm") != std::string::npos;
  if (assembly) {
    std::string found;
    for (const std::string& name : refused) found += " " + name;
    fail(source +
         ": inline assembly of the machine is not emulated, except for "
         "some scalar instructions" +
         (found.empty() ? "" : "; it has" + found) + ": write C" +
         (refused.count("vlenma") != 0
              ? " (for a sum with element i of w: sum = "
                "simd_vmas(simd_vcpyfs(w[i]), x, sum))"
              : "") +
         ", or guard it by a macro");
  }
  const std::string hint = advice(source, left);
  if (!hint.empty()) fail(hint);
  std::exit(code);
}

// compiled() compiles the source and returns the file that was compiled: the
// source, or a rewritten copy if gcc refuses it. It sets
// options.uncached as gcc and the assembler take the section of __uncached
// variables.
std::string compiled(Options& options, const std::string& source,
                     const std::string& output) {
  const std::string ending = ending_of(options, source);
  Words whole =
      command(options, flags(options, source), options.rest, source, output);
  const bool assembly = ending == ".s" || ending == ".S";
  if (is_fortran(named(options, source))) {
    run_or_exit(whole);
    return source;
  }
  if (isatty(STDERR_FILENO) != 0) {
    whole.insert(whole.begin() + 1, "-fdiagnostics-color=always");
  }
  const std::string errors = temporary_file(".txt");
  const int code = run(whole, errors);
  const std::string text = read_file(errors);
  if (code != 0 && assembly) {
    const std::size_t line = text.find('\n', text.find("rror: "));
    std::fputs((text.substr(0, line) + "\n").c_str(), stderr);
    fail(source +
         ": assembly of the machine is not emulated; write the file in C");
  }
  // gcc refuses the section, or ignores that of a type, with a warning.
  static const std::regex kRefused("section (attribute|of|type) ");
  static const std::regex kIgnored("section\\S* attribute does not apply");
  if (options.uncached != Options::Uncached::unknown &&
      ((code != 0 && std::regex_search(text, kRefused)) ||
       std::regex_search(text, kIgnored))) {
    options.uncached = Options::Uncached::unknown;
    return compiled(options, source, output);
  }
  if (code != 0 && options.uncached == Options::Uncached::zero &&
      text.find("in section `swamp_uncached_zero'") != std::string::npos) {
    options.uncached = Options::Uncached::data;
    return compiled(options, source, output);
  }
  if (code != 0) {
    if (has(options.rest, "-c")) {
      return rewritten(options, source, output, text, code);
    }
    std::fputs(text.c_str(), stderr);
    leave(code);
  }
  std::fputs(text.c_str(), stderr);
  return source;
}

void compile_one(Options options, const std::string& source,
                 const std::string& output) {
  const std::string what = compiled(options, source, output);
  const std::string ending = ending_of(options, source);
  if (!makes_objects(options) || ending == ".s" || ending == ".S") return;
  const bool slave = options.side == Options::Side::slave;
  std::string uncached;
  if (slave) {
    uncached = uncached_declarations(what == source
                                         ? preprocessed(options, source, {})
                                         : read_file(what));
  }
  weaken_common(output);
  if (!slave && (is_sanitized(options) || !spawns(output))) return;
  // A later make must not link an object that lacks its second copy.
  remove_on_failure(output);
  if (slave && calls_any(output, {"GOMP_", "omp_"})) {
    fail(source +
         ": OpenMP in slave code (parallel, target, omp_get_thread_num()) is "
         "not emulated: spawn the loop with athread_spawn, and divide it by "
         "_PEN");
  }
  add_checked(options, what, output, uncached);
  remove_on_failure("");
}

}  // namespace

std::string compiler(const Options& options) {
  return options.cplusplus ? "g++" : "gcc";
}

void compile(const Options& options) {
  Words sources;
  for (const std::string& input : options.inputs) {
    const std::string ending = ending_of(options, input);
    // gcc, too, ignores what only a link needs.
    if (input.rfind("-l", 0) == 0 || ending == ".o" || ending == ".a") continue;
    sources.push_back(input);
  }
  if (sources.empty()) fail("no input files");
  if (!options.output.empty() && sources.size() > 1 &&
      has(options.rest, "-c")) {
    fail("-o with -c and several files");
  }
  for (const std::string& source : sources) {
    std::string output = options.output;
    if (output.empty() && has(options.rest, "-c")) {
      output = std::filesystem::path(source).stem().string() + ".o";
    }
    if (makes_objects(options) && std::filesystem::exists(output) &&
        !file_exists(output)) {
      // objcopy wants a file: -o /dev/null.
      const std::string object = temporary_file(".o");
      compile_one(options, source, object);
      write_file(output, read_file(object));
    } else {
      compile_one(options, source, output);
    }
  }
}

void compile_file(const Options& options, const std::string& source,
                  const std::string& object) {
  Options one = options;
  one.rest.push_back("-c");
  compile_one(one, source, object);
}

}  // namespace swcc
