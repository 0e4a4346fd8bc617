// Whole transfers between memory and an open file, several under way at once.
//
// A transfer is cut into requests, of which as many as the raw layer takes are under way; the others
// wait in line. What the system did only a part of is asked for again, from where it stopped. A transfer that fails is
// told by wait(), as an EnvironmentError with the file, the call and what the system said. One thread uses it.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "tensor/disk/raw_io.h"

namespace lockstep::disk {

class FileIo {
 public:
  // `lockstep bench disk` measures these and others (docs/offload.md).
  static constexpr std::int64_t kRequestBytes = 1 << 20;
  static constexpr int kDepth = 16;

  using Ticket = std::uint64_t;

  // `name` of the file, for messages. The file outlives it.
  FileIo(int file, std::string name, std::unique_ptr<RawIo> raw, std::int64_t request_bytes = kRequestBytes);
  ~FileIo();  // waits for what is under way

  Ticket read(void* to, std::int64_t offset, std::int64_t bytes) { return start(false, to, offset, bytes); }
  Ticket write(const void* from, std::int64_t offset, std::int64_t bytes) {
    return start(true, const_cast<void*>(from), offset, bytes);
  }
  void wait(Ticket ticket);  // once for each

 private:
  struct Transfer {
    std::int64_t left = 0;  // requests
    int error = 0;          // the first errno
    bool ended = false;     // the file ended before the bytes did
    bool write = false;
  };
  Ticket start(bool write, void* data, std::int64_t offset, std::int64_t bytes);
  void give_more();
  void take_one();

  int file_;
  std::string name_;
  std::unique_ptr<RawIo> raw_;
  std::int64_t request_bytes_;
  std::deque<std::pair<Ticket, RawRequest>> waiting_;
  std::map<std::uint64_t, std::pair<Ticket, RawRequest>> under_way_;  // by tag
  std::map<Ticket, Transfer> transfers_;
  std::uint64_t next_ticket_ = 1, next_tag_ = 1;
};

}  // namespace lockstep::disk
