#include "bench/disk_bench.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/median.h"
#include "offload/staging.h"
#include "tensor/cpu/stream.h"
#include "tensor/disk/file_io.h"
#include "tensor/disk/file_memory.h"

namespace lockstep {

namespace {

using disk::FileIo;

constexpr std::int64_t kPiece = 32 << 20;

class OpenFile {
 public:
  explicit OpenFile(const std::filesystem::path& folder) : opened_(disk::open_nameless(folder)) {}
  ~OpenFile() { ::close(opened_.file); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  const disk::NamelessFile& get() const { return opened_; }

 private:
  disk::NamelessFile opened_;
};

// Some disks keep no zeros, and no blocks twice.
void fill_with_noise(void* data, std::int64_t bytes) {
  std::uint64_t word = 88172645463325252U + reinterpret_cast<std::uintptr_t>(data);
  for (std::int64_t i = 0; i < bytes / 8; ++i) {
    word ^= word << 13;
    word ^= word >> 7;
    word ^= word << 17;
    static_cast<std::uint64_t*>(data)[i] = word;
  }
}

// As the windows' own: in huge pages, which a disk reads into and writes from faster.
class Room {
 public:
  Room() : buffer_(memory_->allocate(4 * kPiece, Tag::workspace)) { fill_with_noise(buffer_.data(), 4 * kPiece); }
  char* piece(std::int64_t i) const { return static_cast<char*>(buffer_.data()) + i % 4 * kPiece; }

 private:
  Ledger ledger_;
  std::unique_ptr<Memory> memory_ = make_memory(Device::cpu, ledger_);
  Buffer buffer_;
};

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Every piece once, two at a time of each kind.
void go_over(FileIo& io, const Room& room, std::int64_t bytes, bool reads, bool writes) {
  std::vector<FileIo::Ticket> tickets;
  const auto settle_to = [&](std::size_t left) {
    while (tickets.size() > left) {
      io.wait(tickets.front());
      tickets.erase(tickets.begin());
    }
  };
  const std::int64_t pieces = bytes / kPiece;
  for (std::int64_t i = 0; i < pieces; ++i) {
    settle_to(reads && writes ? 2 : 1);
    if (reads) tickets.push_back(io.read(room.piece(2 * i), i * kPiece, kPiece));
    // Of both at once: another place than is being read.
    const std::int64_t to = reads ? (i + pieces / 2) % pieces : i;
    if (writes) tickets.push_back(io.write(room.piece(2 * i + 1), to * kPiece, kPiece));
  }
  settle_to(0);
}

double rate_of(const std::function<void()>& work, std::int64_t bytes, int rounds) {
  std::vector<double> rates;
  for (int i = 0; i < rounds; ++i) rates.push_back(static_cast<double>(bytes) / seconds_of(work));
  return median(rates);
}

// What can be gone over: whole pieces, two or more.
std::int64_t whole_pieces(std::int64_t bytes) { return std::max(std::int64_t{2} * kPiece, bytes / kPiece * kPiece); }

}  // namespace

double measure_disk_both_ways(const DiskBenchOptions& o) {
  const OpenFile file(o.folder);
  const Room room;
  const std::int64_t bytes = whole_pieces(o.bytes);
  FileIo io(file.get().file, o.folder.string(), disk::make_io(FileIo::kDepth));
  go_over(io, room, bytes, false, true);  // the file has its blocks then
  return rate_of([&] { go_over(io, room, bytes, true, true); }, bytes, o.rounds);
}

DiskRate measure_disk_each_way(const DiskBenchOptions& o) {
  const OpenFile file(o.folder);
  const Room room;
  const std::int64_t bytes = whole_pieces(o.bytes);
  FileIo io(file.get().file, o.folder.string(), disk::make_io(FileIo::kDepth));
  go_over(io, room, bytes, false, true);  // the file has its blocks then
  const auto rate = [&](bool reads) {
    return rate_of([&] { go_over(io, room, bytes, reads, !reads); }, bytes, o.rounds);
  };
  return {.depth = FileIo::kDepth, .request_bytes = FileIo::kRequestBytes, .read = rate(true), .write = rate(false)};
}

DiskBench measure_disk(const DiskBenchOptions& o) {
  const OpenFile file(o.folder);
  const Room room;
  const std::int64_t bytes = whole_pieces(o.bytes);
  const std::string name = o.folder.string();
  DiskBench found;
  found.direct = file.get().direct;
  {
    FileIo io(file.get().file, name, disk::make_io(FileIo::kDepth));
    go_over(io, room, bytes, false, true);  // the file has its blocks then
  }
  for (const std::int64_t request : {std::int64_t{256} << 10, FileIo::kRequestBytes, std::int64_t{4} << 20})
    for (const int depth : {1, 4, FileIo::kDepth, 64}) {
      FileIo io(file.get().file, name, disk::make_io(depth), request);
      DiskRate& rate = found.rates.emplace_back(DiskRate{.depth = depth, .request_bytes = request});
      rate.write = rate_of([&] { go_over(io, room, bytes, false, true); }, bytes, o.rounds);
      rate.read = rate_of([&] { go_over(io, room, bytes, true, false); }, bytes, o.rounds);
      rate.both = rate_of([&] { go_over(io, room, bytes, true, true); }, bytes, o.rounds);
    }

  Ledger device, there;
  const std::unique_ptr<Memory> memory = make_memory(Device::cpu, device);
  cpu::Stream stream(*memory, 1);
  disk::FileMemory offload(there, o.folder);
  const Buffer buffer = offload.allocate(bytes, Tag::optimizer);
  Staging staging({.window_bytes = kPiece, .on_disk = true}, {{view(buffer, DType::f32, {bytes / 4})}}, *memory,
                  stream);
  FileIo io(file.get().file, name, disk::make_io(FileIo::kDepth));
  std::vector<double> staged, both;
  for (int i = 0; i <= o.rounds; ++i) {
    const double windows = seconds_of([&] {
      staging.run(0, [&](const Staging::Window& w) {
        if (i == 0) fill_with_noise(w.parts[0].raw(), w.parts[0].bytes());
      });
      staging.settle();
    });
    const double plain = seconds_of([&] { go_over(io, room, bytes, true, true); });
    if (i == 0) continue;  // nothing was written yet
    staged.push_back(static_cast<double>(bytes) / windows);
    both.push_back(static_cast<double>(bytes) / plain);
  }
  found.staged = median(staged);
  found.ceiling = median(both);
  return found;
}

}  // namespace lockstep
