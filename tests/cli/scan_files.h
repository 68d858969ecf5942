// Files for the tests of scan, written without the libraries that others use.
#ifndef SWAMP_TESTS_CLI_SCAN_FILES_H_
#define SWAMP_TESTS_CLI_SCAN_FILES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

namespace swamp::test {

// Whether swamp was built with libzip.
#ifdef SWAMP_HAS_LIBZIP
constexpr bool kReadsNpz = true;
#else
constexpr bool kReadsNpz = false;
#endif

// little() is an integer of `bytes` bytes, the lowest first; big() has the
// highest first.
std::string little(std::uint64_t value, std::size_t bytes);
std::string big(std::uint64_t value, std::size_t bytes);

// elements() is the bytes of numbers in little-endian order.
template <class T>
std::string elements(const std::vector<T>& values) {
  std::string bytes;
  for (const T value : values) {
    char native[sizeof value];
    std::memcpy(native, &value, sizeof value);
    if (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__) {
      std::reverse(std::begin(native), std::end(native));
    }
    bytes.append(native, sizeof value);
  }
  return bytes;
}

// safetensors() is the length, a JSON header and the buffer.
std::string safetensors(const std::string& header, const std::string& buffer);

// npy() is an npy file of format version `major`.
std::string npy(const std::string& descr, const std::string& shape,
                const std::string& data, bool fortran = false, int major = 1);
// npy_with() takes the whole header dictionary.
std::string npy_with(const std::string& dictionary, const std::string& data,
                     int major = 1);

// ZipEntry is a member of an archive; fields that are 0 are filled in from
// `data`.
struct ZipEntry {
  std::string name;
  std::string data;  // as packed
  unsigned method = 0;
  std::uint32_t crc = 0;
  std::uint64_t bytes = 0;
  bool zip64 = false;
};
std::uint32_t crc32_of(const std::string& data);
std::string zip(const std::vector<ZipEntry>& entries);
// stored() is a member that is not packed, with its right CRC.
ZipEntry stored(const std::string& name, const std::string& data);
// deflated() is `data` in the form of deflate, in blocks without compression:
// any inflate reads them, and the test needs no library.
ZipEntry deflated(const std::string& name, const std::string& data);

}  // namespace swamp::test

#endif  // SWAMP_TESTS_CLI_SCAN_FILES_H_
