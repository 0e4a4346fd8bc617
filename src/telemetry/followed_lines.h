// The lines of a file that another process may be appending to, each handed out once.
//
// read() hands out the whole lines that are new since the last call; a last line without its end is left for the next
// call. When the file was replaced or has become shorter, as metrics.jsonl does when a run resumes, it says so first
// and begins anew, or, for who keeps marks, at the last mark before which both files are alike: a long run is not read
// from its beginning after each fault. A file that is missing has no lines. The file is read, not mapped, since a
// foreign file may be shortened meanwhile; at most one block of it is held. A line above kMostLineBytes is handed out
// as an empty one.
//
// Nothing throws but what `line` throws. Used by one thread at a time.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class FollowedLines {
 public:
  static constexpr std::size_t kMostLineBytes = 1 << 22;
  static constexpr std::int64_t kMarkBytes = 256 << 10;  // between two marks, or more

  // Who keeps what it knows at marks: `made` after what was handed out so far, `back` to the state at the last of the
  // first `kept` of them, one at least.
  struct Marks {
    std::function<void()> made;
    std::function<void(std::size_t kept)> back;
  };

  // `most_bytes`: of a longer file only the end is read at first, from the first whole line in it on.
  explicit FollowedLines(std::filesystem::path path, std::int64_t most_bytes = INT64_MAX)
      : path_(std::move(path)), most_bytes_(most_bytes) {}

  // `anew` is called when what was handed out before no longer counts, marks neither.
  void read(const std::function<void()>& anew, const std::function<void(std::string_view line)>& line,
            const Marks* marks = nullptr);

  bool exists() const { return exists_; }

 private:
  std::filesystem::path path_;
  std::int64_t most_bytes_;
  std::int64_t offset_ = 0;  // of the first byte that was not handed out
  std::uint64_t device_ = 0, inode_ = 0;
  bool exists_ = false;
  struct Mark {
    std::int64_t offset;
    std::uint64_t before;  // checksum of the bytes before it
  };
  std::vector<Mark> marks_;
};

}  // namespace lockstep
