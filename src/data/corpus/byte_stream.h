// Bytes of a file or of standard input as they come, decompressed.
//
//   const auto stream = open_bytes("web.jsonl.zst");   // by its name: .gz, .zst, else as it is
//   while (std::size_t count = stream->read(room)) …
//
// gzip is read by zlib, all members of a file one after another; zstd by libzstd, all frames, with a window of up to
// 128 MiB. What is held does not depend on what the data decompress to. Standard input ("-") is compressed if its first
// bytes say so. A build without one of the libraries refuses such a file by the library's name.
//
// One thread at a time; raw_bytes() from any.
// Failure: UserError (bad_input_file), one line with the file, the place and a remedy: data that end early, that are
// damaged, or that are not what the name says. EnvironmentError when the system does not read.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace lockstep {

inline constexpr std::string_view kStandardInput = "-";

class ByteStream {
 public:
  ByteStream() = default;
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;
  virtual ~ByteStream() = default;
  virtual std::size_t read(std::span<char> to) = 0;  // at most to.size() > 0; 0 at the end, and only there
  virtual std::int64_t raw_bytes() const = 0;        // read so far, before decompression
  // Begins at this byte of the stream; false where that needs reading all before it.
  virtual bool skip_to(std::int64_t) { return false; }
};

std::unique_ptr<ByteStream> open_bytes(const std::string& path);

// What messages call it: the path, or "standard input".
std::string shown_name(const std::string& path);

// A name without .gz or .zst at its end.
std::string_view without_compression(std::string_view name);

// Of a stream of compressed bytes; `name` is what messages call it. (Each is in a file of its own, and one that refuses
// stands in for it in a build without its library.)
std::unique_ptr<ByteStream> gunzipped(std::unique_ptr<ByteStream> raw, std::string name);
std::unique_ptr<ByteStream> unzstd(std::unique_ptr<ByteStream> raw, std::string name);

}  // namespace lockstep
