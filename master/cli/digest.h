#ifndef SWAMP_MASTER_CLI_DIGEST_H_
#define SWAMP_MASTER_CLI_DIGEST_H_

#include <cstdint>
#include <string_view>

namespace swamp::cli {

inline constexpr std::uint64_t kDigestStart = 0xcbf29ce484222325u;

// add_to_digest() is FNV-1a: the digest of what came before and `bytes`.
inline std::uint64_t add_to_digest(std::uint64_t digest,
                                   std::string_view bytes) noexcept {
  for (const char byte : bytes) {
    digest = (digest ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  }
  return digest;
}

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_DIGEST_H_
