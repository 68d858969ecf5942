#include "master/cli/scan/file_list.h"

#include <fmt/format.h>

#include <filesystem>
#include <set>
#include <system_error>

#include "master/cli/command.h"
#include "master/cli/scan/index_file.h"
#include "master/cli/scan/mapped_file.h"

namespace swamp::cli {
namespace {

namespace fs = std::filesystem;
using Complain = std::function<void(const std::string& text)>;

constexpr const char* kIndexSuffix = ".index.json";
constexpr const char* kFolderIndexSuffix = ".safetensors.index.json";

bool ends_with(const std::string& text, const std::string& suffix) {
  return text.size() >= suffix.size() &&
         text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0;
}

// format_of_name() says whether a name tells the format.
bool format_of_name(const std::string& path, FileFormat& format) {
  const std::pair<const char*, FileFormat> suffixes[] = {
      {".safetensors", FileFormat::safetensors},
      {".npy", FileFormat::npy},
      {".npz", FileFormat::npz}};
  for (const auto& [suffix, named] : suffixes) {
    if (!ends_with(path, suffix)) continue;
    format = named;
    return true;
  }
  return false;
}

// format_of_content() looks at a file that another name was given.
FileFormat format_of_content(const std::string& path) {
  const MappedFile file(path);
  const Bytes start = file.bytes().substr(0, 9);
  if (start.substr(0, 6) == "\x93NUMPY") return FileFormat::npy;
  if (start.substr(0, 2) == "PK") return FileFormat::npz;
  if (start.size() == 9 && start[8] == '{') return FileFormat::safetensors;
  throw Failure(
      "unknown format, expected safetensors, *.index.json, npy or npz");
}

void add_index(const std::string& path, std::vector<ScanFile>& files) {
  const MappedFile file(path);
  ShardMap shards = read_index(file.bytes());
  file.check();
  const fs::path folder = fs::path(path).parent_path();
  for (auto& [name, tensors] : shards) {
    files.push_back({(folder / name).string(), FileFormat::safetensors,
                     std::move(tensors)});
  }
}

void add_folder(const std::string& path, bool recursive,
                std::vector<ScanFile>& files, const Complain& complain) {
  std::vector<std::string> names;
  std::vector<std::string> folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    std::error_code gone;
    if (entry.is_directory(gone)) {
      // No links: they may lead in a circle.
      if (!entry.is_symlink(gone)) folders.push_back(entry.path().string());
    } else {
      names.push_back(entry.path().string());
    }
  }
  std::sort(names.begin(), names.end());
  std::sort(folders.begin(), folders.end());
  std::vector<ScanFile> found;
  for (const std::string& name : names) {
    if (!ends_with(name, kFolderIndexSuffix)) continue;
    try {
      add_index(name, found);
    } catch (const Failure& failure) {
      complain(fmt::format("{}: {}", name, failure.what()));
    }
  }
  std::set<std::string> shards;
  for (const ScanFile& file : found) shards.insert(file.path);
  FileFormat format;
  for (const std::string& name : names) {
    if (!format_of_name(name, format) || shards.count(name) != 0) continue;
    found.push_back({name, format, {}});
  }
  std::stable_sort(
      found.begin(), found.end(),
      [](const ScanFile& a, const ScanFile& b) { return a.path < b.path; });
  std::move(found.begin(), found.end(), std::back_inserter(files));
  if (!recursive) return;
  for (const std::string& folder : folders) {
    add_folder(folder, true, files, complain);
  }
}

void add_argument(const std::string& path, bool recursive,
                  std::vector<ScanFile>& files, const Complain& complain) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    const std::size_t before = files.size();
    bool complained = false;
    add_folder(path, recursive, files, [&](const std::string& text) {
      complained = true;
      complain(text);
    });
    if (files.size() != before || complained) return;
    throw Failure("a folder without *.safetensors, *.npy or *.npz");
  }
  FileFormat format;
  if (ends_with(path, kIndexSuffix)) {
    add_index(path, files);
  } else if (format_of_name(path, format)) {
    files.push_back({path, format, {}});
  } else {
    files.push_back({path, format_of_content(path), {}});
  }
}

}  // namespace

std::vector<ScanFile> list_files(const std::vector<std::string>& arguments,
                                 bool recursive, const Complain& complain) {
  std::vector<ScanFile> files;
  for (const std::string& path : arguments) {
    try {
      add_argument(path, recursive, files, complain);
    } catch (const fs::filesystem_error& error) {
      complain(fmt::format("{}: {}", path, error.code().message()));
    } catch (const Failure& failure) {
      complain(fmt::format("{}: {}", path, failure.what()));
    }
  }
  return files;
}

}  // namespace swamp::cli
