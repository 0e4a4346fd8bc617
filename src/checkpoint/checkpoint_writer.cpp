#include "checkpoint/checkpoint_writer.h"

#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/integers.h"
#include "tensor/transfer.h"

namespace lockstep {
namespace {
constexpr std::int64_t kSnapshotAlignment = 64;  // of each tensor in the buffer
}

CheckpointWriter::CheckpointWriter(CheckpointFolder folder, std::vector<StateTensor> pieces, Memory& host, Disk disk,
                                   Communicator* ranks)
    : folder_(std::move(folder)), live_(std::move(pieces)), snapshot_(live_), disk_(std::move(disk)), ranks_(ranks) {
  LOCKSTEP_CHECK(host.device() != Device::cuda, "a snapshot on {}", name_of(host.device()));
  std::int64_t bytes = 0;
  for (const StateTensor& t : live_) {
    LOCKSTEP_CHECK((t.live.device() == Device::meta) == (host.device() == Device::meta),
                   "a tensor on {} and a snapshot on {}", name_of(t.live.device()), name_of(host.device()));
    bytes += round_up(t.live.bytes(), kSnapshotAlignment);
  }
  buffer_ = host.allocate(bytes, Tag::workspace, "checkpoint");
  if (host.device() == Device::meta) return;
  auto* at = static_cast<std::byte*>(buffer_.data());
  for (StateTensor& t : snapshot_) {
    t.live = Tensor(at, t.live.dtype(), Device::cpu, {t.live.elements()});
    at += round_up(t.live.bytes(), kSnapshotAlignment);
  }
}

CheckpointWriter::~CheckpointWriter() {
  if (thread_.joinable()) thread_.join();
}

void CheckpointWriter::wait() {
  if (thread_.joinable()) thread_.join();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void CheckpointWriter::save(const Progress& progress, Stream& stream) {
  wait();
  if (buffer_.memory()->device() == Device::meta) return;
  for (std::size_t i = 0; i < live_.size(); ++i) download(snapshot_[i].live.raw(), live_[i].live, stream);
  const auto write = [this, progress] {
    try {
      save_checkpoint(folder_, progress, snapshot_, disk_, ranks_);
    } catch (...) {
      error_ = std::current_exception();
    }
  };
  try {
    thread_ = std::thread(write);
  } catch (const std::system_error& error) {
    throw EnvironmentError(fmt::format("a thread to write the checkpoint could not start: {}", error.what()));
  }
}

}  // namespace lockstep
