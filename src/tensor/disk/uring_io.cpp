#include <liburing.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "tensor/disk/raw_io.h"

namespace lockstep::disk {

namespace {

class UringIo final : public RawIo {
 public:
  UringIo(const io_uring& ring, int depth) : ring_(ring), depth_(depth) {}
  ~UringIo() override {
    while (under_way_ > 0) next();
    io_uring_queue_exit(&ring_);
  }

  int depth() const override { return depth_; }

  void start(const RawRequest& request) override {
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
    LOCKSTEP_CHECK(entry && under_way_ < depth_, "{} requests are under way", under_way_);
    const auto offset = static_cast<std::uint64_t>(request.offset);
    const auto bytes = static_cast<unsigned>(request.bytes);
    if (request.write)
      io_uring_prep_write(entry, request.file, request.data, bytes, offset);
    else
      io_uring_prep_read(entry, request.file, request.data, bytes, offset);
    io_uring_sqe_set_data64(entry, request.tag);
    int status = 0;
    do status = io_uring_submit(&ring_);
    while (status == -EINTR || status == -EAGAIN);
    if (status < 0) throw EnvironmentError(fmt::format("io_uring_submit failed: {}", std::strerror(-status)));
    ++under_way_;
  }

  RawResult next() override {
    LOCKSTEP_CHECK(under_way_ > 0, "nothing is under way");
    io_uring_cqe* entry = nullptr;
    int status = 0;
    do status = io_uring_wait_cqe(&ring_, &entry);
    while (status == -EINTR);
    if (status < 0) throw EnvironmentError(fmt::format("io_uring_wait_cqe failed: {}", std::strerror(-status)));
    const RawResult result{io_uring_cqe_get_data64(entry), entry->res};
    io_uring_cqe_seen(&ring_, entry);
    --under_way_;
    return result;
  }

 private:
  io_uring ring_;
  int depth_;
  int under_way_ = 0;
};

}  // namespace

std::unique_ptr<RawIo> make_uring_io(int depth) {
  io_uring ring{};
  if (io_uring_queue_init(static_cast<unsigned>(depth), &ring, 0) != 0) return nullptr;
  return std::make_unique<UringIo>(ring, depth);
}

}  // namespace lockstep::disk
