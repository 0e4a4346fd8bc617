#include "checkpoint/checkpoint_writer.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/integers.h"
#include "checkpoint/state_copy.h"
#include "tensor/cuda/gpu_in_use.h"
#include "tensor/transfer.h"

namespace lockstep {
namespace {
constexpr std::int64_t kSnapshotAlignment = 64;  // of each tensor in the buffer
constexpr double kMeeting = 0.2;                 // seconds, at most, between two meetings of ranks that pause
}  // namespace

CheckpointWriter::CheckpointWriter(CheckpointFolder folder, std::vector<StateTensor> pieces, Memory& host, Disk disk,
                                   Communicator* ranks, RetryPauses pauses, Memory* beside)
    : folder_(std::move(folder)),
      live_(std::move(pieces)),
      snapshot_(live_),
      disk_(std::move(disk)),
      ranks_(ranks),
      pauses_(pauses) {
  LOCKSTEP_CHECK(host.device() != Device::cuda, "a snapshot on {}", name_of(host.device()));
  std::int64_t bytes = 0;
  for (const StateTensor& t : live_) {
    LOCKSTEP_CHECK((t.live.device() == Device::meta) == (host.device() == Device::meta),
                   "a tensor on {} and a snapshot on {}", name_of(t.live.device()), name_of(host.device()));
    bytes += round_up(t.live.bytes(), kSnapshotAlignment);
  }
  buffer_ = host.allocate(bytes, Tag::workspace, folder_.copies ? kCopiesUnit : "checkpoint");
  if (beside) beside_ = beside->allocate(bytes, Tag::workspace, "checkpoint");
  if (host.device() == Device::meta) return;
  std::int64_t at = 0;
  for (StateTensor& t : snapshot_) {
    const auto placed = [&](const Buffer& in, Device device) {
      return Tensor(static_cast<std::byte*>(in.data()) + at, t.live.dtype(), device, {t.live.elements()});
    };
    if (beside) held_.push_back(placed(beside_, beside->device()));
    t.live = placed(buffer_, Device::cpu);
    at += round_up(t.live.bytes(), kSnapshotAlignment);
  }
}

CheckpointWriter::~CheckpointWriter() {
  {
    const std::lock_guard lock(mutex_);
    given_up_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void CheckpointWriter::join() {
  if (thread_.joinable()) thread_.join();
  if (broken_) std::rethrow_exception(broken_);
}

void CheckpointWriter::save(const Progress& progress, Stream& stream) { save(progress, stream, {}); }

void CheckpointWriter::save(const Progress& progress, std::vector<StateTensor> pieces, Stream& stream,
                            const Turn& turn) {
  LOCKSTEP_CHECK(pieces.size() == live_.size(), "{} pieces of a state of {}", pieces.size(), live_.size());
  live_ = std::move(pieces);
  save(progress, stream, turn);
}

void CheckpointWriter::save(const Progress& progress, Stream& stream, const Turn& turn) {
  {
    const std::lock_guard lock(mutex_);
    given_up_ = true;  // one that is failing: this state is newer
  }
  changed_.notify_all();
  join();
  if (buffer_.memory()->device() == Device::meta) return;
  result_ = {};
  tried_ = given_up_ = hurry_ = false;
  end_.reset();
  snapshot(stream, turn);
  try {
    thread_ = std::thread([this, progress] { write(progress); });
  } catch (const std::system_error& error) {
    throw EnvironmentError(fmt::format("a thread to write the checkpoint could not start: {}", error.what()));
  }
}

// What is on the device goes into its room, or beside the stream's next work; what is offloaded, now.
void CheckpointWriter::snapshot(Stream& stream, const Turn& turn) {
  if ((stream.runs_ahead() || beside_.memory()) && !side_) {
    side_.emplace(stream.device());
    complete_ = stream.make_event();
    read_ = side_->stream().make_event();
  }
  const auto begin_side = [&] {
    stream.record(*complete_);
    side_->stream().wait(*complete_);
  };
  if (side_ && !beside_.memory()) begin_side();
  in_held_.clear();
  if (beside_.memory() && stream.device() == Device::cuda) gpu_ = cuda::gpu_in_use();
  for (std::size_t i = 0; i < live_.size(); ++i) {
    if (turn) turn(live_[i]);
    void* const to = snapshot_[i].live.raw();
    if (beside_.memory() && live_[i].live.device() == beside_.memory()->device()) {
      pack_later(held_[i].raw(), live_[i].live, stream);
      in_held_.push_back(i);
    } else if (side_ && live_[i].live.device() == stream.device()) {
      download_later(to, live_[i].live, side_->stream());
    } else {
      download(to, live_[i].live, stream);
    }
  }
  if (beside_.memory()) return begin_side();
  if (!side_) return;
  side_->stream().record(*read_);
  reads_ = true;
}

Event* CheckpointWriter::being_read() {
  if (reads_ && read_->done()) reads_ = false;
  return reads_ ? read_.get() : nullptr;
}

void CheckpointWriter::write(const Progress& progress) {
  try {
    if (beside_.memory())
      bring_to_host();
    else if (side_)
      read_->wait();
    double seconds = pauses_.first;
    for (;;) {
      SaveResult result = try_save(folder_, progress, snapshot_, disk_, ranks_);
      tell(progress, result);
      if (result.outcome != SaveOutcome::failed || !pause(seconds)) return;
      seconds = std::min(2 * seconds, pauses_.most);
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    broken_ = std::current_exception();
    tried_ = true;
  }
  changed_.notify_all();
}

void CheckpointWriter::bring_to_host() {
  Stream& side = side_->stream();
  if (side.device() == Device::cuda) cuda::use_gpu(gpu_);
  for (const std::size_t i : in_held_) {
    const std::int64_t each = kPiece / size_of(held_[i].dtype()), all = held_[i].elements();
    for (std::int64_t begin = 0; begin < all; begin += each) {
      const std::int64_t count = std::min(each, all - begin);
      download_later(snapshot_[i].live.slice(0, begin, count).raw(), held_[i].slice(0, begin, count), side);
      side.record(*read_);
      read_->wait();
    }
  }
}

void CheckpointWriter::tell(const Progress& progress, const SaveResult& result) {
  {
    const std::lock_guard lock(mutex_);
    if (!tried_ || result.outcome != result_.outcome || result.words != result_.words)
      events_.push_back({progress.step, result.outcome, result.words});
    result_ = result;
    tried_ = true;
  }
  changed_.notify_all();
}

// What all ranks do next: who gives up decides for all, and rank 0 when to try again.
CheckpointWriter::Next CheckpointWriter::agree(Next mine) {
  if (!ranks_ || ranks_->size() == 1) return mine;
  constexpr std::int64_t kGivingUp = std::int64_t{1} << 32;
  std::int64_t votes = mine == Next::give_up ? kGivingUp : mine == Next::again && ranks_->rank() == 0 ? 1 : 0;
  ranks_->all_reduce(Tensor(&votes, DType::i64, Device::cpu, {1}))->wait();
  return votes >= kGivingUp ? Next::give_up : votes > 0 ? Next::again : Next::pause;
}

// Before the next try. False: there is to be none.
bool CheckpointWriter::pause(double seconds) {
  const auto after = [](Clock::time_point from, double s) {
    return from + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
  };
  const bool several = ranks_ && ranks_->size() > 1, first = !several || ranks_->rank() == 0;
  const Clock::time_point begun = Clock::now();
  for (;;) {
    Next mine = Next::pause;
    {
      std::unique_lock lock(mutex_);
      const auto due = [&] {  // sooner when somebody waits
        return end_ ? std::min(after(begun, std::min(seconds, pauses_.first)), *end_) : after(begun, seconds);
      };
      const Clock::time_point until = several ? std::min(due(), after(Clock::now(), kMeeting)) : due();
      changed_.wait_until(lock, until, [&] { return given_up_ || (first && hurry_); });
      const Clock::time_point now = Clock::now();
      const bool hurry = std::exchange(hurry_, false);
      if (given_up_ || (end_ && now >= *end_ && !hurry && first))
        mine = Next::give_up;
      else if (hurry || now >= due())
        mine = Next::again;
    }
    mine = agree(mine);
    if (mine != Next::pause) return mine == Next::again;
  }
}

SaveResult CheckpointWriter::wait(double patience) {
  {
    const std::lock_guard lock(mutex_);
    end_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(patience));
    hurry_ = true;
  }
  changed_.notify_all();
  join();
  return result_;
}

bool CheckpointWriter::failing() {
  const std::lock_guard lock(mutex_);
  return result_.outcome == SaveOutcome::failed;
}

std::vector<SaveEvent> CheckpointWriter::events() {
  const std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

}  // namespace lockstep
