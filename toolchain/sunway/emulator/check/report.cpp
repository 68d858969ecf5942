#include "toolchain/sunway/emulator/check/report.h"

#include <atomic>
#include <cstdio>
#include <map>
#include <mutex>
#include <tuple>

#include "toolchain/sunway/emulator/check/location.h"
#include "toolchain/sunway/emulator/check/registry.h"
#include "toolchain/sunway/emulator/process.h"
#include "toolchain/sunway/emulator/settings.h"

namespace swamp::sunway::check {
namespace {

struct Said {
  std::string line;
  std::size_t count = 0;
  bool is_note = false;
};
using Key = std::tuple<std::string, const void*, const void*>;

struct All {
  std::mutex mutex;
  std::map<Key, Said> said;
  std::atomic<bool> reporting{false};
  std::atomic<bool> reported{false};
  Forward forward = nullptr;
};
All& all() {
  static All* const made = new All;  // outlives every destructor
  return *made;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

void append_json(const Finding& finding, const Location& at, bool is_note,
                 const std::string& text) {
  const std::string& name = settings().report_file;
  if (name.empty()) return;
  std::FILE* file = std::fopen(name.c_str(), "a");
  if (file == nullptr) return;
  std::string line = "{\"category\":" + quoted(finding.category) +
                     ",\"note\":" + (is_note ? "true" : "false") +
                     ",\"file\":" + quoted(at.file) +
                     ",\"line\":" + std::to_string(at.line);
  if (finding.slave != nullptr) {
    line += ",\"cg\":" + std::to_string(finding.slave->group) +
            ",\"slave\":" + std::to_string(finding.slave->id);
  }
  if (finding.clash != nullptr) {
    const Location other = locate(finding.clash);
    line += ",\"other_file\":" + quoted(other.file) +
            ",\"other_line\":" + std::to_string(other.line);
  }
  line += ",\"text\":" + quoted(text) + "}\n";
  std::fputs(line.c_str(), file);
  std::fclose(file);
}

void emit(const Finding& finding, bool is_note) {
  const OwnAllocations own;
  All& state = all();
  const std::lock_guard<std::mutex> lock(state.mutex);
  if (!is_note) state.reported = true;
  if (state.forward != nullptr) return state.forward(finding, is_note);
  Said& said = state.said[{finding.category, finding.pc, finding.clash}];
  said.is_note = is_note;
  if (said.count++ != 0) return;
  state.reporting = true;
  const Location at = locate(finding.pc);
  std::string text = finding.text;
  if (finding.clash != nullptr) {
    const Location other = locate(finding.clash);
    text +=
        " (the other: " + other.file + ":" + std::to_string(other.line) + ")";
  }
  const std::string who = finding.slave == nullptr
                              ? "master"
                              : "cg " + std::to_string(finding.slave->group) +
                                    " slave " +
                                    std::to_string(finding.slave->id);
  said.line = at.file + ":" + std::to_string(at.line) + ": " +
              (is_note ? "note: " : "") + finding.category + ": " + who + ": " +
              text;
  print_line(said.line);
  append_json(finding, at, is_note, text);
  state.reporting = false;
  if (!is_note && settings().halt) end_now(kReportedExit);
}

}  // namespace

void report(const Finding& finding) { emit(finding, false); }
void note(const Finding& finding) { emit(finding, true); }

bool reported() noexcept { return all().reported; }

bool is_reporting() noexcept { return all().reporting; }

void forward_findings(Forward forward) {
  const std::lock_guard<std::mutex> lock(all().mutex);
  all().forward = forward;
}

void print_totals() {
  const std::lock_guard<std::mutex> lock(all().mutex);
  if (all().forward != nullptr) return;
  std::size_t repeated = 0;
  for (const auto& [key, said] : all().said) {
    if (!said.is_note) repeated += said.count - 1;
  }
  if (repeated != 0) {
    print_line("swamp: " + std::to_string(repeated) +
               " more of the same at these places, by other slaves or later");
  }
}

}  // namespace swamp::sunway::check
