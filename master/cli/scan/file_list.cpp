// A folder is searched for files of tensors, an index (*.index.json) names the
// shards that must exist, and the format of a file is told by its name, or else
// by its first bytes.
#include <fmt/core.h>

#include <filesystem>
#include <set>
#include <system_error>
#include <unordered_set>

#include "master/cli/command.h"
#include "master/cli/json.h"
#include "master/cli/scan/tensor_file.h"
#include "master/cli/text.h"

namespace swamp::cli {
namespace {

namespace fs = std::filesystem;
using Complain = std::function<void(const std::string& text)>;

constexpr const char* kIndexSuffix = ".index.json";
constexpr const char* kFolderIndexSuffix = ".safetensors.index.json";
constexpr std::size_t kMaxIndexBytes = 100000000;

// check_name() refuses names that lead out of the index's folder.
void check_name(const std::string& tensor, const std::string& file) {
  bool leads_out =
      file.empty() || file[0] == '/' || file.find('\0') != std::string::npos;
  for (std::size_t begin = 0; begin <= file.size();) {
    const std::size_t end = std::min(file.find('/', begin), file.size());
    leads_out |= file.compare(begin, end - begin, "..") == 0;
    begin = end + 1;
  }
  if (!leads_out) return;
  throw Failure(fmt::format(
      "weight_map: tensor {}: got file {}, expected one in the folder "
      "of the index",
      in_quotes(tensor), in_quotes(file)));
}

// Index keeps the weight_map, whose entries are at depth 2, and skips
// everything else.
class Index final : public JsonReader {
 public:
  ShardMap take() {
    if (!seen_)
      throw Failure("no weight_map, expected {\"weight_map\": {...}}");
    return std::move(shards_);
  }

  bool start_object(std::size_t) override {
    check("an object", depth() == 0 || (depth() == 1 && in_map_));
    return enter();
  }
  bool key(std::string& name) override {
    if (depth() == 1) {
      in_map_ = name == "weight_map";
      if (in_map_ && seen_) throw Failure("weight_map twice");
      seen_ |= in_map_;
    } else if (depth() == 2 && in_map_) {
      tensor_ = name;
      if (!tensors_.insert(name).second) {
        throw Failure(fmt::format("weight_map: tensor {} is there twice",
                                  in_quotes(name)));
      }
    }
    return true;
  }
  bool start_array(std::size_t) override {
    check("an array", false);
    return enter();
  }
  bool string(std::string& text) override {
    check("a string", depth() == 2);
    if (depth() != 2 || !in_map_) return true;
    check_name(tensor_, text);
    shards_[text].push_back(tensor_);
    return true;
  }
  bool number_unsigned(std::uint64_t) override { return refuse("a number"); }

 private:
  void check(const char* kind, bool fine) const override {
    if (fine) return;
    if (depth() == 0) {
      throw Failure(fmt::format("got {}, expected an object", kind));
    }
    if (!in_map_) return;
    if (depth() == 1) {
      throw Failure(
          fmt::format("weight_map: got {}, expected an object", kind));
    }
    throw Failure(
        fmt::format("weight_map: tensor {}: got {}, expected the name of "
                    "a file",
                    in_quotes(tensor_), kind));
  }

  ShardMap shards_;
  std::unordered_set<std::string> tensors_;
  std::string tensor_;
  bool in_map_ = false;
  bool seen_ = false;
};

bool ends_with(const std::string& text, const std::string& suffix) {
  return text.size() >= suffix.size() &&
         text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0;
}

// format_of_name() returns whether a name tells the format.
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

// is_torch_save() returns whether a file begins as torch.save() writes it: as a
// zip archive whose first member is NAME/data.pkl, or, before PyTorch 1.6, as a
// pickle of a magic number.
bool is_torch_save(Bytes file) {
  constexpr std::size_t kZipHeaderBytes = 30;
  constexpr Bytes kMember = "/data.pkl";
  constexpr Bytes kMagic =
      "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
  if (file.substr(0, kMagic.size()) == kMagic) return true;
  if (file.size() < kZipHeaderBytes || file.substr(0, 4) != "PK\3\4") {
    return false;
  }
  const Bytes name =
      file.substr(kZipHeaderBytes, load_little<std::uint16_t>(file, 26));
  return name.size() >= kMember.size() &&
         name.substr(name.size() - kMember.size()) == kMember;
}

// format_of_content() tells the format of a file whose name does not.
FileFormat format_of_content(const std::string& path) {
  const MappedFile file(path);
  if (is_torch_save(file.bytes())) {
    throw Failure("a torch.save file: export it as safetensors");
  }
  const Bytes start = file.bytes().substr(0, 9);
  if (start.substr(0, 6) == "\x93NUMPY") return FileFormat::npy;
  if (start.substr(0, 2) == "PK") return FileFormat::npz;
  if (start.size() == 9 && start[8] == '{') return FileFormat::safetensors;
  throw Failure(
      "got an unknown format, expected safetensors, *.index.json, npy or npz");
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
  std::error_code error;
  fs::directory_iterator entry(path, error);
  while (!error && entry != fs::directory_iterator()) {
    std::error_code gone;
    if (entry->is_directory(gone)) {
      // Links to folders are not followed: they may form a cycle.
      if (!entry->is_symlink(gone)) folders.push_back(entry->path().string());
    } else {
      names.push_back(entry->path().string());
    }
    entry.increment(error);
  }
  if (error) {
    complain(
        fmt::format("{}: cannot list the folder: {}", path, error.message()));
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

ShardMap read_index(Bytes json) {
  if (json.size() > kMaxIndexBytes) {
    throw Failure(fmt::format("got an index of {} bytes, expected at most {}",
                              json.size(), kMaxIndexBytes));
  }
  Index index;
  index.read(json);
  return index.take();
}

std::vector<ScanFile> list_files(const std::vector<std::string>& arguments,
                                 bool recursive, const Complain& complain) {
  std::vector<ScanFile> files;
  for (const std::string& path : arguments) {
    try {
      add_argument(path, recursive, files, complain);
    } catch (const Failure& failure) {
      complain(fmt::format("{}: {}", path, failure.what()));
    }
  }
  return files;
}

}  // namespace swamp::cli
