// A file that wants to break what reads it, and the program that refuses it: in one line that names the file, in
// bounded memory, within seconds, without leaving anything behind.
#pragma once
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "support/program.h"

namespace lockstep::tests {

struct HostileInput {
  std::string name;  // of the case, in letters and underlines
  std::string file;  // its name, which the message must have
  std::function<std::string()> content;
  std::string says;  // a part of the message
  int code = 4;
  std::string named = "";  // what the message names where it is not the file
};
inline void PrintTo(const HostileInput& input, std::ostream* out) { *out << input.name; }

// What it may take, on a busy machine and with what the program itself needs.
inline constexpr std::int64_t kMostHostileBytes = std::int64_t{512} << 20;
inline constexpr int kMostHostileSeconds = 10;

// The folder of a case: files beside the input, such as a model, are put there before.
class HostileFolder {
 public:
  explicit HostileFolder(const HostileInput& input);
  void write(const std::string& name, const std::string& content) const;
  std::string operator/(const std::string& name) const { return folder_ / name; }
  // Runs the program here and expects all that is said above.
  void expect_refused(const std::vector<std::string>& arguments) const;

 private:
  const HostileInput& input_;
  TemporaryFolder folder_;
};

// A few files for content() that is not a string of bytes.
inline constexpr const char* kAFolder = "\x01 a folder";
inline constexpr const char* kAPipe = "\x01 a pipe";
inline constexpr const char* kNoFile = "\x01 nothing";           // no such file
inline constexpr const char* kAHole = "\x01 a hole of 100 GiB";  // a sparse file of zeros

inline std::string times(const std::string& text, std::size_t count) {
  std::string all;
  all.reserve(text.size() * count);
  for (std::size_t i = 0; i < count; ++i) all += text;
  return all;
}

}  // namespace lockstep::tests
