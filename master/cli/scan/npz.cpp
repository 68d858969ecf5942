#include "master/cli/scan/npz.h"

#include <fmt/format.h>

#include "master/cli/command.h"
#include "master/cli/scan/npy.h"
#include "master/cli/scan/zip_member.h"

namespace swamp::cli {
namespace {

constexpr Bytes kSuffix = ".npy";

FileTensor read_member(const std::shared_ptr<const ZipMember>& member) {
  const Bytes name = member->name;
  if (name.size() < kSuffix.size() ||
      name.substr(name.size() - kSuffix.size()) != kSuffix) {
    throw Failure("expected the name of an .npy file");
  }
  const std::unique_ptr<ByteStream> stream = open_member(*member);
  const NpyHeader header = read_npy_header(*stream);
  FileTensor tensor = npy_tensor(
      header, std::string(name.substr(0, name.size() - kSuffix.size())),
      member->bytes);
  tensor.member = member;
  tensor.member_offset = header.bytes;
  return tensor;
}

}  // namespace

std::vector<FileTensor> read_npz(Bytes file) {
  std::vector<FileTensor> tensors;
  for (ZipMember& entry : read_zip_directory(file)) {
    const auto member = std::make_shared<const ZipMember>(std::move(entry));
    try {
      tensors.push_back(read_member(member));
    } catch (const Failure& failure) {
      const std::string text = failure.what();
      if (text.rfind("zip: ", 0) == 0) throw;  // names the member already
      throw Failure(fmt::format("member {}: {}", quoted(member->name), text));
    }
  }
  return tensors;
}

}  // namespace swamp::cli
