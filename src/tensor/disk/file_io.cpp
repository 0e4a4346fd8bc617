#include "tensor/disk/file_io.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/system_failure.h"

namespace lockstep::disk {

FileIo::FileIo(int file, std::string name, std::unique_ptr<RawIo> raw, std::int64_t request_bytes)
    : file_(file), name_(std::move(name)), raw_(std::move(raw)), request_bytes_(request_bytes) {}

FileIo::~FileIo() {
  waiting_.clear();
  try {
    while (!under_way_.empty()) take_one();
  } catch (...) {  // the raw layer itself has failed, and has nothing under way any more
  }
}

FileIo::Ticket FileIo::start(bool write, void* data, std::int64_t offset, std::int64_t bytes) {
  const Ticket ticket = next_ticket_++;
  Transfer& transfer = transfers_[ticket];
  transfer.write = write;
  for (std::int64_t at = 0; at < bytes; at += request_bytes_) {
    waiting_.push_back({ticket,
                        {.write = write,
                         .file = file_,
                         .offset = offset + at,
                         .data = static_cast<char*>(data) + at,
                         .bytes = std::min(request_bytes_, bytes - at)}});
    ++transfer.left;
  }
  give_more();
  return ticket;
}

void FileIo::give_more() {
  while (!waiting_.empty() && std::ssize(under_way_) < raw_->depth()) {
    auto [ticket, request] = waiting_.front();
    waiting_.pop_front();
    request.tag = next_tag_++;
    under_way_[request.tag] = {ticket, request};
    raw_->start(request);
  }
}

void FileIo::take_one() {
  const RawResult result = raw_->next();
  const auto found = under_way_.find(result.tag);
  LOCKSTEP_CHECK(found != under_way_.end(), "request {} was never started", result.tag);
  auto [ticket, request] = found->second;
  under_way_.erase(found);
  Transfer& transfer = transfers_.at(ticket);
  if (result.result == -EINTR || result.result == -EAGAIN) {
    waiting_.push_front({ticket, request});
  } else if (result.result > 0 && result.result < request.bytes) {
    request.offset += result.result;
    request.data = static_cast<char*>(request.data) + result.result;
    request.bytes -= result.result;
    waiting_.push_front({ticket, request});
  } else {
    if (result.result < 0 && transfer.error == 0) transfer.error = static_cast<int>(-result.result);
    if (result.result == 0) transfer.ended = true;
    --transfer.left;
  }
  give_more();
}

void FileIo::wait(Ticket ticket) {
  while (transfers_.at(ticket).left > 0) take_one();
  const Transfer transfer = transfers_.at(ticket);
  transfers_.erase(ticket);
  const char* const call = transfer.write ? "write" : "read";
  if (transfer.error == 0 && !transfer.ended) return;
  const int error = transfer.error != 0 ? transfer.error : EIO;
  throw EnvironmentError(fmt::format("{}: {} failed: {}; {} with memory.offload_folder", name_, call,
                                     transfer.error != 0 ? std::strerror(error) : "the file is shorter than it was",
                                     remedy_of(error)));
}

}  // namespace lockstep::disk
