// A disk that reads at once, and writes when there is nothing else to wait for.
#pragma once
#include <unistd.h>

#include <deque>

#include "tensor/disk/raw_io.h"

namespace lockstep::tests {

class LateWrites final : public disk::RawIo {
 public:
  int depth() const override { return 64; }
  void start(const disk::RawRequest& r) override {
    if (r.write)
      writes_.push_back(r);
    else
      results_.push_back({r.tag, ::pread(r.file, r.data, static_cast<std::size_t>(r.bytes), r.offset)});
  }
  disk::RawResult next() override {
    if (results_.empty()) {
      const disk::RawRequest& w = writes_.front();
      results_.push_back({w.tag, ::pwrite(w.file, w.data, static_cast<std::size_t>(w.bytes), w.offset)});
      writes_.pop_front();
    }
    const disk::RawResult result = results_.front();
    results_.pop_front();
    return result;
  }

 private:
  std::deque<disk::RawRequest> writes_;
  std::deque<disk::RawResult> results_;
};

}  // namespace lockstep::tests
