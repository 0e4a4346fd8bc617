#include "comm/mpi/transport.h"

#include <cstring>

#include "comm/mpi/transport_state.h"

namespace lockstep::mpi {

namespace {

constexpr std::size_t kNoticeBytes = 3200;

std::vector<char> packed(const FailureNotice& notice) {
  std::vector<char> bytes(kNoticeBytes);
  std::memcpy(bytes.data(), &notice.group, 8);
  bytes[8] = notice.failure.secondary;
  const std::size_t n = std::min(notice.failure.what.size(), kNoticeBytes - 10);
  std::memcpy(bytes.data() + 9, notice.failure.what.data(), n);
  return bytes;
}

FailureNotice unpacked(const std::vector<char>& bytes) {
  FailureNotice notice;
  std::memcpy(&notice.group, bytes.data(), 8);
  notice.failure.secondary = bytes[8] != 0;
  notice.failure.what = bytes.data() + 9;  // the last byte is a zero
  return notice;
}

}  // namespace

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char words[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, words, &length);
  throw EnvironmentError(fmt::format("{}: {}", call, std::string(words, static_cast<std::size_t>(length))));
}

Transport::Transport() : state_(std::make_unique<State>()) {
  int provided = 0;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_FUNNELED)
    throw EnvironmentError("this MPI allows no threads in the program; use one built with thread support");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
}

Transport::~Transport() = default;

std::vector<std::string> Transport::gather(const std::string& mine) {
  constexpr int kMost = 256;
  std::vector<char> all(static_cast<std::size_t>(size_ * kMost));
  std::string own = mine.substr(0, kMost - 1);
  own.resize(kMost);
  check_mpi(MPI_Allgather(own.data(), kMost, MPI_CHAR, all.data(), kMost, MPI_CHAR, MPI_COMM_WORLD), "MPI_Allgather");
  std::vector<std::string> words;
  for (int rank = 0; rank < size_; ++rank) words.emplace_back(all.data() + rank * kMost);
  return words;
}

void Transport::listen(OnNotice on_notice) {
  on_notice_ = std::move(on_notice);
  state_->notice_bytes.resize(kNoticeBytes);
  check_mpi(MPI_Irecv(state_->notice_bytes.data(), kNoticeBytes, MPI_CHAR, MPI_ANY_SOURCE, kNotices, MPI_COMM_WORLD,
                      &state_->listening),
            "MPI_Irecv");
}

std::shared_ptr<Completion> Transport::queue(Wanted wanted) {
  std::shared_ptr<Completion> completion = wanted.completion;
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(wanted));
  }
  wakeup_->notify_progress();
  return completion;
}

std::shared_ptr<Completion> Transport::post(std::vector<Transfer> transfers, std::shared_ptr<void> holds) {
  auto completion = std::make_shared<Completion>();
  completion->left = static_cast<int>(transfers.size());
  completion->holds = std::move(holds);
  if (transfers.empty()) return completion;
  return queue({std::move(transfers), {}, completion});
}

void Transport::tell(const std::vector<int>& ranks, const FailureNotice& notice) {
  const auto bytes = std::make_shared<std::vector<char>>(packed(notice));
  std::vector<Transfer> transfers;
  for (const int rank : ranks) transfers.push_back({Transfer::Way::send, bytes->data(), kNoticeBytes, rank, kNotices});
  post(std::move(transfers), bytes);
}

bool Transport::poll() {
  for (;;) {
    Wanted wanted;
    {
      const std::lock_guard lock(mutex_);
      if (queue_.empty()) break;
      wanted = std::move(queue_.front());
      queue_.pop_front();
    }
    if (wanted.native) wanted.native(*state_);
    for (const Transfer& t : wanted.transfers) {
      MPI_Request request = MPI_REQUEST_NULL;
      const int bytes = static_cast<int>(t.bytes);
      if (t.way == Transfer::Way::receive)
        check_mpi(MPI_Irecv(t.data, bytes, MPI_BYTE, t.peer, t.tag, MPI_COMM_WORLD, &request), "MPI_Irecv");
      else
        check_mpi(MPI_Isend(t.data, bytes, MPI_BYTE, t.peer, t.tag, MPI_COMM_WORLD, &request), "MPI_Isend");
      state_->requests.push_back(request);
      state_->completions.push_back(wanted.completion);
    }
  }
  if (state_->listening != MPI_REQUEST_NULL) {
    int came = 0;
    check_mpi(MPI_Test(&state_->listening, &came, MPI_STATUS_IGNORE), "MPI_Test");
    if (came) {
      const FailureNotice notice = unpacked(state_->notice_bytes);
      listen(on_notice_);
      on_notice_(notice);
    }
  }
  if (state_->requests.empty()) return false;
  int count = 0;
  std::vector<int> which(state_->requests.size());
  check_mpi(
      MPI_Testsome(static_cast<int>(which.size()), state_->requests.data(), &count, which.data(), MPI_STATUSES_IGNORE),
      "MPI_Testsome");
  if (count <= 0) return true;
  bool notifies = false;
  for (int i = 0; i < count; ++i) {
    std::shared_ptr<Completion>& completion =
        state_->completions[static_cast<std::size_t>(which[static_cast<std::size_t>(i)])];
    notifies |= completion->left.fetch_sub(1, std::memory_order_acq_rel) == 1;
    completion.reset();
  }
  std::erase(state_->requests, MPI_REQUEST_NULL);
  std::erase(state_->completions, nullptr);
  if (notifies) wakeup_->notify();
  return true;
}

bool Transport::idle() {
  const std::lock_guard lock(mutex_);
  return queue_.empty() && state_->requests.empty();
}

void Transport::finalize() {
  if (state_->listening != MPI_REQUEST_NULL) {
    MPI_Cancel(&state_->listening);
    MPI_Request_free(&state_->listening);
  }
  for (auto& [key, comm] : state_->groups) MPI_Comm_free(&comm);
  MPI_Finalize();
}

}  // namespace lockstep::mpi
