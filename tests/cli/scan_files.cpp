#include "tests/cli/scan_files.h"

#include <algorithm>

namespace swamp::test {

std::string little(std::uint64_t value, std::size_t bytes) {
  std::string out;
  for (std::size_t i = 0; i < bytes; ++i, value >>= 8) {
    out += static_cast<char>(value & 0xff);
  }
  return out;
}

std::string big(std::uint64_t value, std::size_t bytes) {
  std::string out = little(value, bytes);
  std::reverse(out.begin(), out.end());
  return out;
}

std::string safetensors(const std::string& header, const std::string& buffer) {
  return little(header.size(), 8) + header + buffer;
}

std::string npy_with(const std::string& dictionary, const std::string& data,
                     int major) {
  const std::size_t width = major == 1 ? 2 : 4;
  std::string header = dictionary;
  while ((8 + width + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  return "\x93NUMPY" + little(static_cast<unsigned>(major), 1) + little(0, 1) +
         little(header.size(), width) + header + data;
}

std::string npy(const std::string& descr, const std::string& shape,
                const std::string& data, bool fortran, int major) {
  return npy_with("{'descr': '" + descr +
                      "', 'fortran_order': " + (fortran ? "True" : "False") +
                      ", 'shape': " + shape + ", }",
                  data, major);
}

std::uint32_t crc32_of(const std::string& data) {
  std::uint32_t crc = 0xffffffff;
  for (const char byte : data) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xedb88320u : 0u);
    }
  }
  return ~crc;
}

ZipEntry stored(const std::string& name, const std::string& data) {
  return {name, data, 0, crc32_of(data), data.size(), false};
}

ZipEntry deflated(const std::string& name, const std::string& data) {
  std::string packed;
  std::size_t at = 0;
  do {
    const std::size_t count = std::min<std::size_t>(data.size() - at, 1000);
    const bool last = at + count == data.size();
    packed += little(last ? 1 : 0, 1) + little(count, 2) +
              little(~count & 0xffff, 2) + data.substr(at, count);
    at += count;
  } while (at < data.size());
  return {name, packed, 8, crc32_of(data), data.size(), false};
}

std::string zip(const std::vector<ZipEntry>& entries) {
  constexpr std::uint64_t kIn64 = 0xffffffff;
  std::string file;
  std::string directory;
  for (const ZipEntry& entry : entries) {
    const std::uint64_t offset = file.size();
    const std::string sizes =
        entry.zip64 ? little(kIn64, 4) + little(kIn64, 4)
                    : little(entry.data.size(), 4) + little(entry.bytes, 4);
    const std::string sizes64 =
        little(entry.bytes, 8) + little(entry.data.size(), 8);
    const std::string local_extra =
        entry.zip64 ? little(1, 2) + little(16, 2) + sizes64 : "";
    const std::string extra =
        entry.zip64 ? little(1, 2) + little(24, 2) + sizes64 + little(offset, 8)
                    : "";
    const std::string common =
        little(45, 2) + little(0, 2) + little(entry.method, 2) + little(0, 4) +
        little(entry.crc, 4) + sizes + little(entry.name.size(), 2);
    file += "PK\3\4" + common + little(local_extra.size(), 2) + entry.name +
            local_extra + entry.data;
    directory += "PK\1\2" + little(45, 2) + common + little(extra.size(), 2) +
                 little(0, 10) + little(entry.zip64 ? kIn64 : offset, 4) +
                 entry.name + extra;
  }
  const std::uint64_t begin = file.size();
  file += directory;
  const bool zip64 = std::any_of(entries.begin(), entries.end(),
                                 [](const ZipEntry& e) { return e.zip64; });
  if (zip64) {
    const std::uint64_t end64 = file.size();
    file += "PK\6\6" + little(44, 8) + little(45, 2) + little(45, 2) +
            little(0, 8) + little(entries.size(), 8) +
            little(entries.size(), 8) + little(directory.size(), 8) +
            little(begin, 8);
    file += "PK\6\7" + little(0, 4) + little(end64, 8) + little(1, 4);
  }
  return file + "PK\5\6" + little(0, 4) + little(entries.size(), 2) +
         little(entries.size(), 2) + little(directory.size(), 4) +
         little(zip64 ? kIn64 : begin, 4) + little(0, 2);
}

}  // namespace swamp::test
