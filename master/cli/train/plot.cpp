// Pictures by gnuplot, which reads a script with the data in it and writes to
// its stdout.
#include <fmt/core.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "master/cli/command.h"
#include "master/cli/train/files.h"
#include "master/cli/train/log.h"

namespace swamp::cli {
namespace {

constexpr const char* kPng = R"(
if (strstrt(GPVAL_TERMINALS, ' pngcairo ') > 0) \
  set terminal pngcairo size 1200,800 font 'Sans,13' background '#ffffff'; \
else \
  set terminal png size 1200,800
)";
constexpr const char* kSvg = R"(
set terminal svg size 1200,800 font 'Sans,13' background '#ffffff'
)";

// The picture goes to stdout, so that no file name is part of a script.
constexpr const char* kScript = R"(
set multiplot
set lmargin at screen 0.085
set rmargin at screen 0.975
set border 3 linecolor '#666666'
set tics nomirror textcolor '#333333'
set grid ytics linecolor '#dddddd' linetype 1
set xrange [0.5:steps + 0.5]
set key top right noenhanced textcolor '#333333' samplen 2 spacing 1.2

set tmargin at screen 0.92
set bmargin at screen 0.46
set title heading noenhanced font ',15' textcolor '#222222'
set label 1 'loss' at screen 0.02, screen 0.69 rotate center \
  textcolor '#333333'
set format y '%.1f'
set format x ''
plot $taken using 1:2 with lines linewidth 2 linecolor '#2563a8' \
       title 'loss', \
     $skipped using 1:2 with points pointtype 7 pointsize 0.9 \
       linecolor '#d1442f' title skips

set tmargin at screen 0.42
set bmargin at screen 0.09
unset title
set xlabel 'step' textcolor '#333333'
set label 1 'log2 of the loss scale' at screen 0.02, screen 0.255
set format x '%g'
set format y '%g'
set yrange [low - 1:high + 1]
plot $scale using 1:2 with steps linewidth 2 linecolor '#3b8f5a' \
       title 'loss scale', \
     $skipped using 1:3 with points pointtype 7 pointsize 0.9 \
       linecolor '#d1442f' title 'skipped'
unset multiplot
)";

// Range is the range of the logarithms of the scales.
struct Range {
  double low = 0;
  double high = 0;
};

void add_block(std::string& script, const char* name,
               const std::string& lines) {
  // gnuplot cannot plot an empty block: add a point outside the picture.
  script += fmt::format("${} << END\n{}END\n", name,
                        lines.empty() ? "-9 0 0\n" : lines);
}

// script_of() contains only numbers, constant texts and a title from plain().
std::string script_of(const std::string& title, const History& history) {
  std::string taken;
  std::string skipped;
  std::string scale;
  Range range{INFINITY, -INFINITY};
  std::size_t skips = 0;
  for (std::size_t i = 0; i < history.steps(); ++i) {
    const double log2 = std::log2(history.scale(i));
    const bool has_scale = std::isfinite(log2);
    if (has_scale) {
      range = {std::min(range.low, log2), std::max(range.high, log2)};
      scale += fmt::format("{} {}\n", i + 1, log2);
    }
    // gnuplot does not draw NaN, and interrupts the line there.
    const double loss = history.loss(i);
    const std::string point = fmt::format(
        "{} {}", i + 1, std::isfinite(loss) ? fmt::format("{}", loss) : "NaN");
    taken += point + "\n";
    if (!history.skipped(i)) continue;
    ++skips;
    skipped += fmt::format("{} {}\n", point, has_scale ? log2 : 0);
  }
  if (range.low > range.high) range = {0, 0};
  std::string script;
  add_block(script, "taken", taken);
  add_block(script, "skipped", skipped);
  add_block(script, "scale", scale);
  script += fmt::format(
      "heading = '{}'\nskips = '{} skipped step{}'\n"
      "steps = {}\nlow = {}\nhigh = {}\n",
      title, skips, skips == 1 ? "" : "s", history.steps(), range.low,
      range.high);
  return script + kScript;
}

std::string plain(std::string title) {
  for (char& character : title) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte < 0x20 || byte > 0x7e || std::strchr("'\"`\\", character)) {
      character = '?';
    }
  }
  return title;
}

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

File temporary_file(const std::string& content = "") {
  File file(std::tmpfile());
  if (!file ||
      std::fwrite(content.data(), 1, content.size(), file.get()) !=
          content.size() ||
      std::fflush(file.get()) != 0 || std::fseek(file.get(), 0, SEEK_SET)) {
    throw Failure(
        fmt::format("no temporary file for gnuplot: {}", std::strerror(errno)));
  }
  return file;
}

std::string first_line(std::FILE* file) {
  std::rewind(file);
  char line[200];
  while (std::fgets(line, sizeof line, file) != nullptr) {
    line[std::strcspn(line, "\n")] = '\0';
    if (line[std::strspn(line, " ^")] != '\0') return line;
  }
  return "without a message";
}

// run_gnuplot() returns the error of posix_spawnp(), 0 if there is none. It
// uses no shell.
int run_gnuplot(std::FILE* script, int picture, std::FILE* errors,
                int& status) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fileno(script), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, picture, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, fileno(errors), STDERR_FILENO);
  std::string program = "gnuplot";
  std::string defaults = "--default-settings";
  char* arguments[] = {program.data(), defaults.data(), nullptr};
  pid_t child = 0;
  const int failure =
      posix_spawnp(&child, "gnuplot", &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) return failure;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  // POSIX lets posix_spawnp() report a missing program in this way, too.
  const bool missing = WIFEXITED(status) && WEXITSTATUS(status) == 127;
  return missing ? ENOENT : 0;
}

}  // namespace

const char* plot_terminal(const std::string& path) {
  std::string suffix = std::filesystem::path(path).extension();
  for (char& letter : suffix) {
    letter =
        static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  if (suffix.empty() || suffix == ".png") return kPng;
  if (suffix == ".svg") return kSvg;
  throw UsageError(fmt::format(
      "--plot: got '{}', expected a name that ends in .png or .svg", path));
}

std::string plot_history(const std::string& path, const std::string& title,
                         const History& history) {
  AtomicFile picture("--plot", path);
  const File input =
      temporary_file(plot_terminal(path) + script_of(plain(title), history));
  const File errors = temporary_file();
  int status = 0;
  const int failure =
      run_gnuplot(input.get(), picture.descriptor(), errors.get(), status);
  if (failure == ENOENT) {
    return fmt::format("--plot: no gnuplot here; '{}' is not written", path);
  }
  if (failure != 0 || status != 0) {
    return fmt::format(
        "--plot: gnuplot failed, '{}' is not written: {}", path,
        failure != 0 ? std::strerror(failure) : first_line(errors.get()));
  }
  picture.commit();
  return "";
}

}  // namespace swamp::cli
