// A checkpoint is a safetensors file: the optimizer's state, the weights of a
// float32 model and the history are tensors, all else is text in its metadata,
// with a digest of everything.
#include "master/cli/train/checkpoint.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "master/cli/command.h"
#include "master/cli/json.h"
#include "master/cli/text.h"
#include "master/cli/train/files.h"

namespace swamp::cli {
namespace {

constexpr char kFormat[] = "swamp.format";
constexpr char kFormatText[] = "swamp train 2";
constexpr char kDigest[] = "swamp.digest";
constexpr char kOption[] = "option.";
constexpr char kRun[] = "run.";
constexpr char kScales[] = "fp8_scales";
constexpr char kModel[] = "model.";
constexpr char kHistory[] = "history";

bool take_prefix(std::string& text, const char* prefix) {
  if (text.rfind(prefix, 0) != 0) return false;
  text.erase(0, std::strlen(prefix));
  return true;
}

template <class Number>
std::string bytes_of(const std::vector<Number>& values) {
  return little_endian_bytes(values.data(), values.size());
}

template <class Number>
std::vector<Number> values_of(const FileTensor& tensor, const char* dtype) {
  if (tensor.element.name != dtype) {
    throw Failure(fmt::format("tensor {}: got {}, expected {}",
                              in_quotes(tensor.name), tensor.element.name,
                              dtype));
  }
  std::vector<Number> values(static_cast<std::size_t>(tensor.count));
  if (!values.empty()) {
    std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  }
  if (tensor.element.swapped) {
    const std::string bytes = little_endian_bytes(values.data(), values.size());
    std::memcpy(values.data(), bytes.data(), bytes.size());
  }
  return values;
}

// Digest covers all texts but itself, and all tensors.
class Digest {
 public:
  void add(Bytes bytes) {
    const std::uint64_t size = bytes.size();
    value_ = add_to_digest(value_, little_endian_bytes(&size, 1));
    value_ = add_to_digest(value_, bytes);
  }
  void add(const Metadata& texts) {
    for (const auto& [name, text] : texts) {
      if (name == kDigest) continue;
      add(Bytes(name));
      add(Bytes(text));
    }
  }
  std::string text() const { return fmt::format("{:016x}", value_); }

 private:
  std::uint64_t value_ = kDigestStart;
};

// run_numbers() are the numbers that only a checkpoint has.
std::vector<std::pair<const char*, std::uint64_t*>> run_numbers(
    Checkpoint& checkpoint) {
  return {{"steps", &checkpoint.trainer.steps},
          {"random", &checkpoint.trainer.random},
          {"nonfinite_losses", &checkpoint.trainer.nonfinite_losses},
          {"log_bytes", &checkpoint.log.bytes},
          {"log_digest", &checkpoint.log.digest},
          {"summed_apart", &checkpoint.summed_apart}};
}

Metadata texts_of(const Checkpoint& checkpoint) {
  Metadata texts = checkpoint.trainer.optimizer.texts;
  texts[kFormat] = kFormatText;
  if (!checkpoint.trainer.scales.empty()) {
    texts[kScales] = checkpoint.trainer.scales;
  }
  for (const auto& [name, value] : checkpoint.options) {
    texts[kOption + name] = value;
  }
  for (const auto& [name, number] :
       run_numbers(const_cast<Checkpoint&>(checkpoint))) {
    texts[std::string(kRun) + name] = std::to_string(*number);
  }
  return texts;
}

void take_texts(const Metadata& texts, Checkpoint& checkpoint) {
  for (const auto& [name, number] : run_numbers(checkpoint)) {
    const auto found = texts.find(std::string(kRun) + name);
    *number =
        parse_integer(fmt::format("{}{}", kRun, name),
                      found == texts.end() ? "" : found->second, 0, UINT64_MAX);
  }
  for (const auto& [name, text] : texts) {
    std::string rest = name;
    if (name == kFormat || name == kDigest || take_prefix(rest, kRun)) continue;
    if (take_prefix(rest, kOption)) {
      checkpoint.options[rest] = text;
    } else if (name == kScales) {
      checkpoint.trainer.scales = text;
    } else {
      checkpoint.trainer.optimizer.texts[name] = text;
    }
  }
}

void take_tensor(const FileTensor& tensor, Checkpoint& checkpoint) {
  std::string rest = tensor.name;
  if (tensor.name == kHistory) {
    if (tensor.shape.size() != 2 || tensor.shape[1] != History::kColumns) {
      throw Failure(fmt::format("tensor 'history': got {}, expected {} columns",
                                shape_text(tensor.shape), History::kColumns));
    }
    checkpoint.history = History(values_of<double>(tensor, "float64"));
  } else if (take_prefix(rest, kModel)) {
    checkpoint.trainer.weights[rest] = values_of<float>(tensor, "float32");
  } else {
    checkpoint.trainer.optimizer.tensors[rest] =
        values_of<float>(tensor, "float32");
  }
}

// TensorPlace is a tensor that is to be written; its bytes are little-endian.
struct TensorPlace {
  std::string name;
  const char* dtype;  // as "F32"
  std::vector<std::uint64_t> shape;
  std::string bytes;
};

// header_json() describes the tensors, one after another, and the texts.
std::string header_json(const Metadata& metadata,
                        const std::vector<TensorPlace>& tensors) {
  Json json;
  for (const auto& [name, text] : metadata) json["__metadata__"][name] = text;
  std::uint64_t begin = 0;
  for (const TensorPlace& tensor : tensors) {
    Json& entry = json[tensor.name];
    const std::uint64_t end = begin + tensor.bytes.size();
    entry["dtype"] = tensor.dtype;
    entry["shape"] = tensor.shape;
    entry["data_offsets"] = {begin, end};
    begin = end;
  }
  return json_line(json);
}

// write_safetensors() returns the content of a safetensors file. Its buffer
// begins at a multiple of 8 bytes, as in the reference implementation.
std::string write_safetensors(const Metadata& metadata,
                              const std::vector<TensorPlace>& tensors) {
  std::string header = header_json(metadata, tensors);
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string file;
  for (int shift = 0; shift < 64; shift += 8) {
    file += static_cast<char>(std::uint64_t{header.size()} >> shift & 0xff);
  }
  file += header;
  for (const TensorPlace& tensor : tensors) file += tensor.bytes;
  return file;
}

}  // namespace

std::string encode_checkpoint(const Checkpoint& checkpoint) {
  std::vector<TensorPlace> tensors;
  const auto add = [&](const std::string& name,
                       const std::vector<float>& values) {
    tensors.push_back({name, "F32", {values.size()}, bytes_of(values)});
  };
  // float64 first: every tensor is aligned.
  tensors.push_back({kHistory,
                     "F64",
                     {checkpoint.history.steps(), History::kColumns},
                     bytes_of(checkpoint.history.values())});
  for (const auto& [name, values] : checkpoint.trainer.weights) {
    add(kModel + name, values);
  }
  for (const auto& [name, values] : checkpoint.trainer.optimizer.tensors) {
    add(name, values);
  }
  Metadata texts = texts_of(checkpoint);
  Digest digest;
  digest.add(texts);
  for (const TensorPlace& tensor : tensors) {
    digest.add(tensor.name);
    digest.add(tensor.bytes);
  }
  texts[kDigest] = digest.text();
  return write_safetensors(texts, tensors);
}

Checkpoint decode_checkpoint(Bytes file) {
  Metadata texts;
  const std::vector<FileTensor> tensors = read_safetensors(file, &texts);
  const std::string format = texts[kFormat];
  if (format != kFormatText) {
    throw Failure(fmt::format(
        "{}: got {}, expected '{}', the model of this version of swamp",
        kFormat, in_quotes(format), kFormatText));
  }
  Checkpoint checkpoint;
  Digest digest;
  digest.add(texts);
  for (const FileTensor& tensor : tensors) {
    digest.add(tensor.name);
    digest.add(tensor.data);
    take_tensor(tensor, checkpoint);
  }
  if (digest.text() != texts[kDigest]) {
    throw Failure(fmt::format("digest: got {}, expected {}: it is damaged",
                              digest.text(), in_quotes(texts[kDigest])));
  }
  take_texts(texts, checkpoint);
  if (checkpoint.history.steps() != checkpoint.trainer.steps) {
    throw Failure(fmt::format("history: got {} steps, expected {}",
                              checkpoint.history.steps(),
                              checkpoint.trainer.steps));
  }
  return checkpoint;
}

bool read_checkpoint(const std::string& path, std::string& content) {
  if (!file_exists("--checkpoint", path)) return false;
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  content.clear();
  std::string part(1 << 16, '\0');  // an iterator would read byte by byte
  while (file.read(part.data(), static_cast<std::streamsize>(part.size())) ||
         file.gcount() > 0) {
    content.append(part, 0, static_cast<std::size_t>(file.gcount()));
  }
  if (!file.is_open() || file.bad()) {
    throw Failure(fmt::format("cannot read: {}", std::strerror(errno)));
  }
  return true;
}

void check_options(const std::map<std::string, std::string>& made_with,
                   const std::map<std::string, std::string>& given) {
  const auto refuse = [](const std::string& name, const std::string& before,
                         const std::string& now) {
    throw Failure(
        fmt::format("made with {} {}, expected {}", name, before, now));
  };
  // First the options of both: another scaler has other options.
  for (const auto& [name, before] : made_with) {
    const auto found = given.find(name);
    if (found != given.end() && found->second != before) {
      refuse(name, before, found->second);
    }
  }
  for (const auto& [name, before] : made_with) {
    if (given.count(name) == 0) refuse(name, before, "none");
  }
  for (const auto& [name, now] : given) {
    if (made_with.count(name) == 0) refuse(name, "none", now);
  }
}

}  // namespace swamp::cli
