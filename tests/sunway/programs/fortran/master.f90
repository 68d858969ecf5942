! A master in Fortran with slaves in C: a common block that both know, an array
! as the argument, and the interfaces of the slave functions.
program master
  implicit none
  integer, parameter :: slaves = 64, length = 100
  real(8) :: scale
  integer :: columns
  common /settings/ scale, columns
  real(8) :: a(length, slaves)
  integer :: i, j, wrong
  external :: slave_twice, slave_add

  scale = 2d0
  columns = length
  do j = 1, slaves
    do i = 1, length
      a(i, j) = i + 1000d0 * j
    end do
  end do
  call athread_init()
  call athread_spawn(slave_twice, a)
  call athread_join()
  scale = 0.5d0
  call athread_spawn(slave_add, a)
  call athread_join()
  call athread_halt()
  wrong = 0
  do j = 1, slaves
    do i = 1, length
      if (a(i, j) /= 2 * (i + 1000d0 * j) + 0.5d0) wrong = wrong + 1
    end do
  end do
  print '("fortran: ",i0," wrong")', wrong
end program master
