#include "offload/staging.h"

#include <algorithm>

#include "base/error.h"
#include "base/integers.h"
#include "tensor/transfer.h"

namespace lockstep {

namespace {

using disk::FileMemory;

// Elements at whose multiples windows are cut, for shards are cut there too and words of random numbers begin there;
// on a disk, where blocks begin whatever the type; and bytes to which a slot's tensors are rounded.
constexpr std::int64_t kCut = 256, kCutOnDisk = disk::kBlock / 2;
std::int64_t rounding(bool on_disk) { return on_disk ? disk::kBlock : kAlignment; }

std::int64_t bytes_an_element(const Staging::Pass& pass) {
  std::int64_t bytes = 0;
  for (const Staging::Part& part : pass) bytes += size_of(part.tensor.dtype());
  return bytes;
}

std::int64_t slot_bytes_of(const Staging::Pass& pass, std::int64_t count, bool on_disk) {
  std::int64_t bytes = 0;
  for (const Staging::Part& part : pass) bytes += round_up(count * size_of(part.tensor.dtype()), rounding(on_disk));
  return bytes;
}

bool is_brought(const Staging::Part& part) { return part.access != Staging::Access::write; }
bool is_taken_back(const Staging::Part& part) { return part.access != Staging::Access::read; }

}  // namespace

Staging::Staging(const Options& options, std::vector<Pass> passes, Memory& memory, Stream& compute)
    : on_disk_(options.on_disk),
      rounds_apart_(options.rounds_apart),
      passes_(std::move(passes)),
      compute_(compute),
      slots_(kSlots) {
  LOCKSTEP_CHECK(!on_disk_ || options.rooms || compute.device() != Device::cuda, "a disk beside a GPU without room");
  const std::int64_t cut = on_disk_ ? kCutOnDisk : kCut;
  for (int p = 0; p < static_cast<int>(passes_.size()); ++p) {
    const Pass& pass = passes_[static_cast<std::size_t>(p)];
    LOCKSTEP_CHECK(!pass.empty(), "a pass over nothing");
    const std::int64_t elements = pass[0].tensor.elements();
    for (const auto& [t, access] : pass)
      LOCKSTEP_CHECK(t.dims() == 1 && t.contiguous() && t.elements() == elements &&
                         (t.device() == Device::disk) == (on_disk_ && compute.device() != Device::meta),
                     "a pass over tensors {} and {} on {}", pass[0].tensor.shape(), t.shape(), name_of(t.device()));
    first_.push_back(std::ssize(order_));
    const std::int64_t each = std::max(cut, options.window_bytes / bytes_an_element(pass) / cut * cut);
    for (std::int64_t begin = 0; begin < elements; begin += each) {
      const std::int64_t count = std::min(each, elements - begin);
      order_.push_back({.pass = p, .begin = begin, .count = count, .stored = compute.make_event()});
      slot_bytes_ = std::max(slot_bytes_, slot_bytes_of(pass, count, on_disk_));
    }
    passed_.push_back(compute.make_event());
  }
  first_.push_back(std::ssize(order_));
  buffer_ = memory.allocate(slot_bytes_ * kSlots + (on_disk_ ? disk::kBlock : 0), Tag::workspace, "offload");
  if (on_disk_ && options.rooms)
    rooms_ = options.rooms->allocate(slot_bytes_ * kSlots + disk::kBlock, Tag::workspace, "offload");
  if (on_disk_) aligned_ = disk::bytes_to_block(buffer_), rooms_begin_ = disk::bytes_to_block(rooms_);
  if (compute.device() == Device::cuda)
    for (std::optional<SideStream>* side : {&up_, &work_, &down_}) side->emplace(Device::cuda);
  for (Slot& slot : slots_)
    for (std::unique_ptr<Event>* event : {&slot.there, &slot.done, &slot.free}) *event = compute.make_event();
  reached_ = compute.make_event();
}

// The slots are still read and written until then, also those whose neighbours have failed.
Staging::~Staging() {
  for (Slot& slot : slots_)
    while (!slot.moving.empty()) {
      try {
        finish(slot);
      } catch (...) {
      }
    }
}

// Of a window of `count` elements that begins at this byte of the buffer.
std::vector<Tensor> Staging::parts_in(const Buffer& buffer, const Pass& pass, std::int64_t count,
                                      std::int64_t offset) const {
  std::vector<Tensor> parts;
  for (const auto& [t, access] : pass) {
    parts.push_back(view(buffer, t.dtype(), {count}, offset / size_of(t.dtype())));
    offset += round_up(count * size_of(t.dtype()), rounding(on_disk_));
  }
  return parts;
}

std::vector<Tensor> Staging::parts_of(std::int64_t number) const {
  const Place& at = order_[static_cast<std::size_t>(number) % order_.size()];
  return parts_in(buffer_, pass_of(at), at.count, aligned_ + number % kSlots * slot_bytes_);
}

std::vector<Tensor> Staging::rooms_of(std::int64_t number) const {
  const Place& at = order_[static_cast<std::size_t>(number) % order_.size()];
  return parts_in(rooms_, pass_of(at), at.count, rooms_begin_ + number % kSlots * slot_bytes_);
}

// Waits for what the disk does with it.
void Staging::finish(Slot& slot) {
  while (!slot.moving.empty()) {
    const FileMemory::Moving moving = slot.moving.back();
    slot.moving.pop_back();
    FileMemory::of(passes_[0][0].tensor.raw()).finish(moving);
  }
  slot.written = -1;
}

void Staging::bring(std::int64_t number) {
  Place& at = place(number);
  Slot& into = slot(number);
  const std::vector<Tensor> parts = parts_of(number);
  const bool from_disk = on_disk_ && !through_rooms() && compute_.device() != Device::meta;
  const std::vector<Tensor> rooms = through_rooms() ? rooms_of(number) : std::vector<Tensor>{};
  if (from_disk) {
    finish(into);
    const std::int64_t before = number - std::ssize(order_);  // the same window a round ago
    if (before >= 0 && slot(before).written == before) finish(slot(before));
  }
  up().wait(*into.free);
  up().wait(*at.stored);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!is_brought(pass_of(at)[i])) continue;
    const Tensor there = pass_of(at)[i].tensor.slice(0, at.begin, at.count);
    if (through_rooms())
      disk_.bring(parts[i], rooms[i], there, up());
    else if (from_disk)
      into.moving.push_back(FileMemory::of(there.raw()).start_read(parts[i].raw(), there.raw(), there.bytes()));
    else
      upload_later(parts[i], there.raw(), up());
  }
  up().record(*into.there);
}

void Staging::take_back(std::int64_t number) {
  Place& at = place(number);
  Slot& from = slot(number);
  work().record(*from.done);
  down().wait(*from.done);
  const std::vector<Tensor> parts = parts_of(number);
  const std::vector<Tensor> rooms = through_rooms() ? rooms_of(number) : std::vector<Tensor>{};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!is_taken_back(pass_of(at)[i])) continue;
    const Tensor there = pass_of(at)[i].tensor.slice(0, at.begin, at.count);
    traffic_.from_device += parts[i].bytes();
    if (compute_.device() == Device::meta) continue;
    if (through_rooms())
      disk_.take_back(there, rooms[i], parts[i], down());
    else if (on_disk_)
      from.moving.push_back(FileMemory::of(there.raw()).start_write(there.raw(), parts[i].raw(), there.bytes()));
    else
      download_later(there.raw(), parts[i], down());
  }
  from.written = number;
  down().record(*from.free);
  down().record(*at.stored);
}

void Staging::run(int pass, const Work& work_on) {
  const auto p = static_cast<std::size_t>(pass);
  const std::int64_t all = std::ssize(order_);
  LOCKSTEP_CHECK(first_[p] == first_[p + 1] || worked_ % all == first_[p], "pass {} comes after window {} of {}", pass,
                 worked_ % all, all);
  disk_.rethrow();
  compute_.record(*reached_);
  work().wait(*reached_);
  for (std::int64_t i = first_[p]; i < first_[p + 1]; ++i) {
    // A slot is for the window that is taken back; and no window is brought before it was taken back the last time.
    const std::int64_t ahead = std::min<std::int64_t>(kSlots - 1, all);
    const std::int64_t end = rounds_apart_ ? (worked_ / all + 1) * all : worked_ + ahead;
    while (brought_ < std::min(worked_ + ahead, end)) bring(brought_++);
    const std::int64_t number = worked_++;
    finish(slot(number));
    work().wait(*slot(number).there);
    const std::vector<Tensor> parts = parts_of(number);
    const Place& at = place(number);
    for (std::size_t i = 0; i < parts.size(); ++i)
      if (is_brought(pass_of(at)[i])) traffic_.to_device += parts[i].bytes();
    work_on({.begin = at.begin, .count = at.count, .parts = parts, .stream = work()});
    take_back(number);
  }
  work().record(*passed_[p]);
}

void Staging::visit(const Pass& pass, const Work& work_on) {
  settle();
  forget();
  const bool meta = compute_.device() == Device::meta;
  const std::int64_t cut = on_disk_ ? kCutOnDisk : kCut, elements = pass[0].tensor.elements();
  // A cut's worth fits always: no window is smaller, and there are more slots than a pass has tensors.
  const std::int64_t room = slot_bytes_ * kSlots - std::ssize(pass) * rounding(on_disk_);
  const std::int64_t each = std::max(cut, room / bytes_an_element(pass) / cut * cut);
  LOCKSTEP_CHECK(slot_bytes_of(pass, std::min(each, elements), on_disk_) <= slot_bytes_ * kSlots,
                 "windows of {} elements in {} bytes", each, slot_bytes_ * kSlots);
  for (std::int64_t begin = 0; begin < elements; begin += each) {
    const std::int64_t count = std::min(each, elements - begin);
    const std::vector<Tensor> parts = parts_in(buffer_, pass, count, aligned_);
    const std::vector<Tensor> rooms =
        through_rooms() ? parts_in(rooms_, pass, count, rooms_begin_) : std::vector<Tensor>{};
    for (std::size_t i = 0; i < parts.size() && !meta; ++i) {
      const Tensor there = pass[i].tensor.slice(0, begin, count);
      if (!is_brought(pass[i])) continue;
      if (through_rooms())
        disk_.bring(parts[i], rooms[i], there, compute_);
      else if (on_disk_)
        download(parts[i].raw(), there, compute_);
      else
        upload_later(parts[i], there.raw(), compute_);
    }
    work_on({.begin = begin, .count = count, .parts = parts, .stream = compute_});
    for (std::size_t i = 0; i < parts.size() && !meta; ++i) {
      const Tensor there = pass[i].tensor.slice(0, begin, count);
      if (!is_taken_back(pass[i])) continue;
      if (through_rooms())
        disk_.take_back(there, rooms[i], parts[i], compute_);
      else if (on_disk_)
        upload(there, parts[i].raw(), compute_);
      else
        download_later(there.raw(), parts[i], compute_);
    }
    compute_.synchronize();
    disk_.rethrow();
  }
}

void Staging::wait_until_back(int pass, Stream& stream) {
  const std::int64_t first = first_[static_cast<std::size_t>(pass)], end = first_[static_cast<std::size_t>(pass) + 1];
  if (first == end) return;
  stream.wait(*order_[static_cast<std::size_t>(end) - 1].stored);  // they are taken back in their order
  const std::int64_t all = std::ssize(order_);
  for (Slot& slot : slots_)
    if (slot.written >= 0 && slot.written % all >= first && slot.written % all < end) finish(slot);
}

void Staging::wait_for(int pass) { compute_.wait(*passed_[static_cast<std::size_t>(pass)]); }

void Staging::settle() {
  for (Stream* stream : {&up(), &work(), &down()}) stream->synchronize();
  for (Slot& slot : slots_) finish(slot);
  disk_.rethrow();
}

void Staging::forget() { brought_ = worked_; }

}  // namespace lockstep
